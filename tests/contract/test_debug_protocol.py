"""The debug socket against clients of every kind: none of them holds the loop, and each gets a clear answer."""

from __future__ import annotations

import json
import math
import os
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.clock import Clock
from supervisor.debug import client, protocol, server
from supervisor.debug.protocol import Kind, Refused
from supervisor.debug.server import Caller, Following, Later, Server
from supervisor.events import Events
from supervisor.loop import Loop
from supervisor.output import Output, Stdout

LIMIT_S = 20.0


@dataclass
class Served:
    """A server in a loop of its own that the test turns by hand."""

    loop: Loop
    path: Path
    server: Server
    later: list[Any] = field(default_factory=list)
    kept: dict[socket.socket, bytearray] = field(default_factory=dict)

    def until(self, what: Callable[[], Any]) -> Any:
        """Turn the loop until `what()` is true."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            self.loop.turn(0.01)
            self.server.tend()
            if got := what():
                return got
        raise AssertionError("nothing came")

    def connect(self, *chunks: bytes) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(str(self.path))
        made.setblocking(False)
        for chunk in chunks:
            made.send(chunk)
        return made

    def reply(self, *chunks: bytes) -> Any:
        """What the server says to somebody who sends this, once it has closed the connection."""
        with closing(self.connect(*chunks)) as made:
            data = self.until(lambda: self.rest(made))
        (length,) = struct.unpack_from("!I", data)
        assert len(data) == length + 4
        return json.loads(data[4:])

    def rest(self, connection: socket.socket) -> bytes | None:
        """Everything that comes on a connection, once it has ended."""
        kept = self.kept.setdefault(connection, bytearray())
        try:
            while data := connection.recv(65536):
                kept += data
        except BlockingIOError:
            return None
        except ConnectionResetError:  # The server closed it over bytes that it did not want.
            pass
        return bytes(self.kept.pop(connection))

    def ask(self, command: str, **arguments: Any) -> Any:
        """The real client in a thread, while the loop turns here."""
        got: list[Any] = []

        def work() -> None:
            try:
                got.append(client.ask(self.path, command, arguments, LIMIT_S))
            except (Refused, client.Unreachable) as e:
                got.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        self.until(lambda: got)
        thread.join()
        if isinstance(got[0], Exception):
            raise got[0]
        return got[0]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(Path(tempfile.mkdtemp(dir=tempfile.gettempdir()), "s.sock")) as made:
        yield made


class serving(ExitStack):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def __enter__(self) -> Any:
        super().__enter__()
        null = os.open(os.devnull, os.O_WRONLY)
        self.callback(os.close, null)
        output = Output(Stdout(null), lambda data: None)
        loop = self.enter_context(Loop(Clock(), Events(output.say), output))
        answers: list[Any] = []
        made = Server(loop, self._path, commands(answers), lambda: 0.25)
        self.callback(made.close)
        return Served(loop, self._path, made, answers)


def commands(answers: list[Any]) -> dict[str, server.Command]:
    def echo(arguments: Mapping[str, Any], caller: Caller) -> Any:
        return {**arguments, "uid": caller.uid}

    def broken(arguments: Mapping[str, Any], caller: Caller) -> Any:
        raise ZeroDivisionError("a fault")

    def no(arguments: Mapping[str, Any], caller: Caller) -> Any:
        raise Refused(Kind.NOT_RUNNING, "it is not running")

    return {
        "echo": echo,
        "broken": broken,
        "no": no,
        "later": lambda arguments, caller: Later(lambda: answers[0] if answers else None),
        "new": lambda arguments, caller: Following(lambda: answers.pop() if answers else None),
        "flood": lambda arguments, caller: Following(lambda: {"text": "x" * 300_000}),
    }


def ask(command: str, stream: bool = False, **arguments: Any) -> bytes:
    return protocol.request(command, arguments, stream=stream)


def test_a_request_gets_one_reply_with_the_snapshots_age(served: Served):
    reply = served.reply(ask("echo", page="0412"))
    data = {"page": "0412", "uid": os.geteuid()}
    assert reply == {"protocol": protocol.PROTOCOL, "ok": True, "age_s": 0.25, "data": data}
    assert served.ask("echo", page="0412") == client.Reply(data, 0.25)


def test_a_request_may_come_in_pieces(served: Served):
    whole = ask("echo", page="0001")
    with closing(served.connect(whole[:3])) as made:
        served.loop.turn(0)
        made.send(whole[3:10])
        served.loop.turn(0)
        made.send(whole[10:])
        assert b"0001" in served.until(lambda: served.rest(made))


def frame(value: Any) -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("!I", len(body)) + body


@pytest.mark.parametrize(
    ("sent", "kind", "says"),
    [
        (frame(b"{not json"), "protocol", "not JSON"),
        (frame(b"\xff\xfe\x00"), "protocol", "not JSON"),
        (frame(b""), "protocol", "not JSON"),
        (frame(b"[" * 60_000), "protocol", "not JSON"),
        (frame([1, 2]), "protocol", "not a JSON object"),
        (frame({}), "protocol", "this is protocol None"),
        (
            frame({"protocol": 2, "command": "echo"}),
            "protocol",
            "this is protocol 2: use the batchpod-debug of the image",
        ),
        (frame({"protocol": 1}), "usage", "there is no command"),
        (frame({"protocol": 1, "command": ["echo"]}), "usage", "there is no command"),
        (frame({"protocol": 1, "command": "destroy"}), "usage", "there is no command 'destroy'; there are echo,"),
        (frame({"protocol": 1, "command": "echo", "arguments": 7}), "usage", "the arguments are not an object"),
        (
            struct.pack("!I", 100 << 20) + b"x" * 1000,
            "protocol",
            "this request is too long: a frame announces 104857600 bytes",
        ),
        (struct.pack("!I", 0xFFFFFFFF), "protocol", "this request is too long"),
        (ask("no"), "not running", "it is not running"),
    ],
)
def test_what_is_no_request_is_refused_with_a_sentence(served: Served, sent: bytes, kind: str, says: str):
    reply = served.reply(sent)
    assert (reply["ok"], reply["kind"]) == (False, kind)
    assert says in reply["error"]
    assert served.reply(ask("echo"))["ok"]


def test_a_fault_in_a_command_is_logged_and_answered(served: Served, caplog: pytest.LogCaptureFixture):
    reply = served.reply(ask("broken"))
    assert reply["kind"] == "internal"
    assert "ZeroDivisionError" in reply["error"]
    assert "a debug command failed" in caplog.text
    assert served.reply(ask("echo"))["ok"]


@pytest.mark.parametrize(("sent", "says"), [(ask("echo")[:9], "only half of a request"), (b"", "no request")])
def test_whoever_does_not_finish_a_request_is_let_go(
    served: Served, monkeypatch: pytest.MonkeyPatch, sent: bytes, says: str
):
    monkeypatch.setattr(server, "REQUEST_S", 0.05)
    assert says in served.reply(*([sent] if sent else []))["error"]


def test_fifty_clients_at_once_are_served_or_told_to_come_back(served: Served):
    with ExitStack() as stack:
        silent = [stack.enter_context(closing(served.connect())) for _ in range(50)]
        served.until(lambda: len(served.server._peers) == server.MAX_CLIENTS)
        turned_away = [c for c in silent if served.rest(c) is not None]
        assert len(turned_away) == 50 - server.MAX_CLIENTS
        busy = served.reply()
        assert (busy["kind"], busy["error"]) == ("busy", "32 clients are connected: ask again in a moment")
    assert served.until(lambda: not served.server._peers)
    assert served.reply(ask("echo"))["ok"]


def test_a_client_that_never_reads_a_stream_is_dropped_and_holds_nobody(served: Served):
    with closing(served.connect(ask("flood", stream=True))):
        served.until(lambda: served.server._peers)
        for _ in range(100):
            served.server.push()
            assert served.reply(ask("echo"))["ok"]
            if not served.server._peers:
                break
        assert not served.server._peers


def test_a_client_that_never_reads_its_reply_is_dropped(served: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "DRAIN_S", 0.05)
    with closing(served.connect(ask("flood"))):
        served.until(lambda: served.server._peers)
        served.until(lambda: not served.server._peers)


def test_whoever_sends_more_than_one_request_is_dropped(served: Served):
    with closing(served.connect(ask("later"))) as made:
        served.until(lambda: any(peer.later for peer in served.server._peers))
        made.send(b"more")
        assert served.until(lambda: served.rest(made) is not None)
    assert not served.server._peers


def test_an_answer_that_is_not_there_yet_comes_when_it_is(served: Served):
    with closing(served.connect(ask("later"))) as made:
        served.until(lambda: any(peer.later for peer in served.server._peers))
        assert served.server.soonest_s < 0.1
        assert served.reply(ask("echo"))["ok"]
        served.later.append({"stacks": "File …"})
        assert "File …".encode() in served.until(lambda: served.rest(made))
    assert served.server.soonest_s == math.inf


def test_only_the_owner_can_open_the_socket_and_a_stale_one_is_replaced(served: Served):
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
    served.server.close()
    assert not served.path.exists()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(served.path))
    with pytest.raises(client.Unreachable, match="the run that made it was killed"):
        client.ask(served.path, "echo", {}, 1.0)
    served.server = Server(served.loop, served.path, commands([]), lambda: 0.0)
    assert served.reply(ask("echo"))["ok"]
    served.server.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_elses_process_is_refused_whatever_the_sockets_mode(served: Served):
    served.path.chmod(0o666)
    for folder in (served.path.parent, served.path.parent.parent):
        folder.chmod(0o711)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(str(served.path))
            os.write(write, made.recv(4096))
        os._exit(0)
    os.close(write)
    os.set_blocking(read, False)

    def arrived() -> bytes:
        try:
            return os.read(read, 4096)
        except BlockingIOError:
            return b""

    said = served.until(arrived)
    os.waitpid(child, 0)
    os.close(read)
    assert b"uid 65534 may not look in here" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_socket_that_somebody_else_listens_at_is_not_believed():
    folder = Path(tempfile.mkdtemp(dir=tempfile.gettempdir()))
    path = folder / "supervisor.sock"
    folder.chmod(0o777)
    read, write = os.pipe()
    with socket.socket(socket.AF_UNIX) as planted:

        def plant() -> None:
            planted.bind(str(path))
            planted.listen()
            path.chmod(0o666)

        def ask_it() -> None:
            try:
                client.ask(path, "stop", {}, 1.0)
            except client.Unreachable as e:
                os.write(write, str(e).encode())

        # Sockets carry the credentials of whoever called listen().
        as_uid(65533, plant)
        as_uid(65534, ask_it)
        path.unlink()
    folder.rmdir()
    os.close(write)
    with open(read) as f:
        assert f.read() == f"uid 65533 listens at {path}, not uid 65534 who asks: it is not believed"


def as_uid(uid: int, work: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        os.setuid(uid)
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_stream_gets_what_was_new_when_the_run_ends(served: Served):
    with closing(served.connect(ask("new", stream=True))) as made:
        served.until(lambda: any(peer._following for peer in served.server._peers))
        served.later.append({"text": "the last line"})
        served.server.close()
        assert b"the last line" in (served.rest(made) or b"")


def test_a_published_snapshot_leaves_a_sign_of_life_on_the_socket(served: Served):
    os.utime(served.path, (0, 0))
    age_s = client.loop_age_s(served.path)
    assert age_s is not None
    assert age_s > 1e9
    served.server.push()
    age_s = client.loop_age_s(served.path)
    assert age_s is not None
    assert age_s < 60


def test_a_server_of_something_else_is_named_as_such(served: Served):
    served.server.close()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(served.path))
        other.listen()

        def speak() -> None:
            with other.accept()[0] as connection:
                connection.send(b"HTTP/1.1 400 Bad Request")

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(client.Unreachable, match="does not speak this protocol"):
            client.ask(served.path, "echo", {}, LIMIT_S)
        thread.join()
        with pytest.raises(client.Silent, match="no answer from"):
            client.ask(served.path, "echo", {}, 0.1)
    served.path.unlink()


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=400), max_size=5))
def test_no_bytes_at_all_disturb_the_server(chunks: list[bytes]):
    folder = Path(tempfile.mkdtemp(dir=tempfile.gettempdir()))
    with serving(folder / "s.sock") as made:
        with closing(made.connect()) as connection:
            for chunk in chunks:
                try:
                    connection.send(chunk)
                except OSError:
                    break
                made.loop.turn(0)
                made.server.tend()
        made.loop.turn(0)
        assert made.reply(ask("echo"))["ok"]
    folder.rmdir()
