"""What a request looks like on the wire, where it may go, and whose credentials travel with it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from actors.fetcher import http
from actors.fetcher.addresses import AddressRefused, GuardedResolver, check_literal, literal, refusal
from actors.fetcher.errors import Denied, FetchError, Misdirected, Unavailable
from actors.fetcher.http import Client, Fetched, retry_after_s
from actors.fetcher.urls import parse
from tools import origin as tell
from tools.origin import running_origin


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    images.mkdir()
    Image.new("RGB", (20, 20)).save(images / "0001.jpg")
    return images


def get(url: str, *, allow_private: bool = True, deadline_s: float = 10.0) -> Fetched:
    async def go() -> Fetched:
        async with Client(user_agent="batchpod/9", deadline_s=deadline_s, allow_private=allow_private) as client:
            return await client.get(url, most_bytes=2**20)

    return asyncio.run(go())


@contextmanager
def listening(answer: bytes | Callable[[socket.socket], None]) -> Iterator[tuple[int, list[bytes]]]:
    """A server that gives every connection the same bytes (or lets `answer` write); its port, and what it was sent."""
    heard: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                data = b""
                while b"\r\n\r\n" not in data and (more := connection.recv(65536)):
                    data += more
                if data:
                    heard.append(data)
                    if isinstance(answer, bytes):
                        connection.sendall(answer)
                    else:
                        answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1], heard
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/iiif/2/a%3Ab%2Fc%252Fd/full/2500,/0/default.jpg", None),
        ("/iipsrv.fcgi?iiif=/2.tif/full/max/0/default.jpg", None),
        ("/a/../b//c/./d", None),
        ("/a;b=c,d!e(f)'*~$&+?x=1&&y==%20&z=[1]|{2}", None),
        ("/a%zz%?%", None),
        ("/a?", None),
        ("/a/full/max/0/default.jpg?", None),
        ("/a??", None),
        ("/a?b?", None),
        ("?", "/?"),
        ("/a?#b", "/a?"),
        ("/arkis!40008772_00001/full/max/0/default.jpg", None),
        ("/with space/å.jpg?q=ö x", "/with%20space/%C3%A5.jpg?q=%C3%B6%20x"),
        ("/a\tb", "/a%09b"),
        ("/a#xywh=0,0,1,1", "/a"),
        ("?iiif=1", "/?iiif=1"),
        ("", "/"),
    ],
)
def test_a_url_is_sent_byte_for_byte(path: str, sent: str | None) -> None:
    with listening(OK) as (port, heard):
        get(f"http://127.0.0.1:{port}{path}")
        assert heard[0].split(b"\r\n")[0] == f"GET {path if sent is None else sent} HTTP/1.1".encode()


@pytest.mark.parametrize(
    ("location", "sent"),
    [
        (b"/b?", b"/b?"),
        (b"?c=%2f&d", b"/a/x?c=%2f&d"),
        (b"?", b"/a/x?"),
        (b"y;z%2F?u=/../v", b"/a/y;z%2F?u=/../v"),
        (b"../b", b"/b"),
        (b"/caf\xe9 \xc3\xa5", b"/caf%E9%20%C3%A5"),
        (b"#top", b"/a/x?q="),
    ],
)
def test_a_relative_redirect_keeps_its_bytes(location: bytes, sent: bytes) -> None:
    away = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\nLocation: " + location + b"\r\n\r\n"
    with listening(away) as (port, heard):
        with pytest.raises(Misdirected):
            get(f"http://127.0.0.1:{port}/a/x?q=")
        assert [line.split()[1] for line in heard[:2]][-1] == sent


def test_a_request_names_itself_and_asks_for_gzip_only() -> None:
    with listening(OK) as (port, heard):
        get(f"http://127.0.0.1:{port}/")
        lines = heard[0].decode().split("\r\n")
        assert "User-Agent: batchpod/9" in lines
        assert [line for line in lines if line.lower().startswith("accept-encoding")] == ["Accept-Encoding: gzip"]
        assert not [line for line in lines if line.lower().startswith(("cookie", "authorization"))]


def test_userinfo_goes_to_its_own_server_and_never_over_a_redirect_to_another(folder: Path) -> None:
    with listening(OK) as (port, heard), running_origin(folder) as origin:
        origin.fault(1, [tell.redirect("/files/0001.jpg?again", times=1), tell.redirect(f"http://127.0.0.1:{port}/x")])
        url = origin.image_urls[0].replace("://", "://user:p%40ss@")
        assert bytes(get(url).data) == b"ok"
        sent = [r.headers.get("Authorization") for r in origin.requests]
        assert sent == ["Basic dXNlcjpwQHNz"] * 2
        assert b"authorization" not in heard[0].lower()
        assert b"user" not in heard[0].replace(b"User-Agent", b"")


def test_a_secure_server_does_not_pass_credentials_on_to_its_plain_port() -> None:
    secure = parse("https://u:p@h.example/a")
    assert secure.redirected("https://h.example/b").authorization is not None
    assert secure.redirected("/b").authorization is not None
    assert secure.redirected("http://h.example/b").authorization is None
    assert secure.redirected("https://h.example:8443/b").authorization is None
    assert parse("http://u:p@h.example/a").redirected("https://h.example/b").authorization is not None


@pytest.mark.parametrize(
    "url",
    ["ftp://h/a", "file:///etc/passwd", "//h/a", "h/a", "", "http://", "http:///a", "http://h:99999/", "http://a b/",
     "http://[::1/", "gopher://h"],
)  # fmt: skip
def test_what_is_no_http_url_is_never_asked(url: str) -> None:
    with pytest.raises(Denied):
        get(url)


def test_an_international_host_name_is_asked_by_its_ascii_form() -> None:
    assert parse("http://bücher.example/ä").url == "http://xn--bcher-kva.example/%C3%A4"


METADATA = [
    "169.254.169.254", "169.254.1.1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "100.100.100.200", "168.63.129.16",
    "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254", "2852039166",
    "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "[fe80::1]", "169.254.169.254.",
]  # fmt: skip


@pytest.mark.parametrize("host", METADATA)
@pytest.mark.parametrize("allow_private", [True, False])
def test_link_local_and_metadata_addresses_are_refused_however_they_are_spelled(host: str, allow_private: bool) -> None:
    with pytest.raises(Denied):
        check_literal(host, allow_private=allow_private)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "0", "0x7f.1", "2130706433", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "::1",
     "::", "fd12::1", "::ffff:10.0.0.1", "0.0.0.0"],
)  # fmt: skip
def test_private_and_loopback_addresses_are_refused_only_where_the_run_says_so(host: str) -> None:
    check_literal(host, allow_private=True)
    with pytest.raises(Denied, match="FETCH_ALLOW_PRIVATE"):
        check_literal(host, allow_private=False)


@pytest.mark.parametrize("host", ["93.184.216.34", "2606:2800:220:1::1", "example.org", "1.example.org", "å.se"])
def test_public_addresses_and_names_pass(host: str) -> None:
    check_literal(host, allow_private=False)
    assert literal("example.org") is None
    assert refusal(ipaddress.ip_address("93.184.216.34"), allow_private=False) is None


def test_a_name_is_checked_by_what_it_resolves_to_and_connected_to_that() -> None:
    async def go() -> list[str]:
        allowed = GuardedResolver(allow_private=True, trusted=frozenset())
        return [found["host"] for found in await allowed.resolve("localhost", 80, socket.AF_UNSPEC)]

    assert set(asyncio.run(go())) <= {"127.0.0.1", "::1"}
    with pytest.raises(Denied, match="FETCH_ALLOW_PRIVATE"):
        get("http://localhost:9/a", allow_private=False)


class Names:
    """Stands for the system's resolver: each question for `name` gets the next of `answers`, the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, *answers: list[str]) -> None:
        self.asked, self._answers, self._name = 0, list(answers), name
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host != self._name:
            return self._real(host, port, *rest, **more)
        self.asked += 1
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        kind = {4: socket.AF_INET, 6: socket.AF_INET6}
        return [(kind[ipaddress.ip_address(a).version], socket.SOCK_STREAM, 6, "", (a, port)) for a in found]


def test_of_a_name_s_addresses_only_those_that_may_be_asked_are_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(OK) as (port, heard):
        Names(monkeypatch, "mixed.example", ["169.254.169.254", "fe80::1", "127.0.0.1"])
        assert bytes(get(f"http://mixed.example:{port}/a").data) == b"ok"
        assert heard[0].split(b"\r\n")[1] == f"Host: mixed.example:{port}".encode()


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "64:ff9b::a9fe:a9fe"])
def test_a_name_that_stands_for_a_metadata_address_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    Names(monkeypatch, "inside.example", [address])
    with pytest.raises(Denied, match=r"inside\.example has a (link-local|metadata) address"):
        get("http://inside.example/latest/meta-data")


def test_a_name_that_changes_its_mind_after_the_check_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer is both checked and connected to; a redirect to the same name is checked by what it is then."""
    away = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\nLocation: http://rebound.example:1/b\r\n\r\n"
    with listening(away) as (port, heard):
        names = Names(monkeypatch, "rebound.example", ["127.0.0.1"], ["169.254.169.254"])
        with pytest.raises(Denied, match="link-local"):
            get(f"http://rebound.example:{port}/a")
        assert (names.asked, len(heard)) == (2, 1)


def test_only_the_proxy_s_own_port_is_beyond_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(port: int) -> int:
        resolver = GuardedResolver(allow_private=False, trusted=frozenset({("proxy.example", 3128)}))
        return len(await resolver.resolve("proxy.example", port))

    Names(monkeypatch, "proxy.example", ["10.0.0.1"])
    assert asyncio.run(go(3128)) == 1
    with pytest.raises(AddressRefused):
        asyncio.run(go(80))


def test_a_name_that_does_not_exist_ends_as_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot be resolved"):
        get("http://no-such-host.invalid/a")


def test_a_port_where_nobody_listens_ends_as_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(Unavailable):
        get(f"http://127.0.0.1:{port}/a")


def test_the_environments_proxy_is_asked_and_only_literal_addresses_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listening(OK) as (port, heard):
        monkeypatch.setenv("http_proxy", f"http://me:pw@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "direct.invalid")
        assert bytes(get("http://origin.invalid/a%2Fb", allow_private=False).data) == b"ok"
        first = heard[0].decode()
        assert first.startswith("GET http://origin.invalid/a%2Fb HTTP/1.1\r\n")
        assert "Proxy-Authorization: Basic bWU6cHc=" in first
        for refused in ("http://169.254.169.254/", "http://2852039166/", "http://10.0.0.1/"):
            with pytest.raises(Denied):
                get(refused, allow_private=False)
        with pytest.raises(Unavailable, match="cannot be resolved"):
            get("http://direct.invalid/")
        assert len(heard) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 20000 + b"\r\n\r\n",
        b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 1000 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: ftp://\xe5\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://\xe5/\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"",
    ],
)
def test_a_server_that_does_not_speak_http_gives_a_fetch_error_and_nothing_else(answer: bytes) -> None:
    with listening(answer) as (port, _), pytest.raises(FetchError) as raised:
        get(f"http://127.0.0.1:{port}/a?token=hush", deadline_s=3)
    text = str(raised.value)
    assert text.isprintable(), text
    assert "hush" not in text
    assert "400, message" not in text


def forever(start: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    """An answer that never ends, a piece each hundredth of a second."""

    def send(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(start)
            while True:
                connection.sendall(piece)
                time.sleep(0.01)

    return send


@pytest.mark.parametrize(
    "answer",
    [
        forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        forever(b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        forever(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"a"),
        forever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;", b"a"),
        forever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", b"X: y\r\n"),
    ],
    ids=["interim answers", "headers", "body", "chunk extension", "trailers"],
)
def test_the_deadline_ends_a_download_in_whatever_phase_it_drips(answer: Callable[[socket.socket], None]) -> None:
    with listening(answer) as (port, _), pytest.raises(Unavailable, match="DOWNLOAD_DEADLINE_SECONDS"):
        get(f"http://127.0.0.1:{port}/a", deadline_s=0.4)


def test_a_server_that_falls_silent_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(http, "SILENCE_S", 0.2)
    for fault in (tell.silent(), tell.stall()):
        with running_origin(folder, {1: fault}, service=False) as origin:
            with pytest.raises(Unavailable, match=r"/files/0001\.jpg: 0\.2 s without a byte"):
                get(origin.image_urls[0])
            origin.fault(1, tell.drip(0.05, 256))
            assert len(get(origin.image_urls[0]).data) == (folder / "0001.jpg").stat().st_size


def test_a_server_that_takes_no_connection_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECT_S", 0.2)
    with contextlib.ExitStack() as held:
        server = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        place = server.getsockname()
        for _ in range(4):  # They fill the queue of connections that nobody accepts.
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(place)
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1 does not take a connection within 0\.2 s"):
            get(f"http://127.0.0.1:{place[1]}/a")


def test_connections_are_kept_and_no_more_than_are_used_at_once(folder: Path) -> None:
    async def go(url: str) -> None:
        async with Client(user_agent="x", deadline_s=10, allow_private=True) as client:
            for _ in range(5):
                await asyncio.gather(*(client.get(url, most_bytes=2**20) for _ in range(3)))

    with running_origin(folder, service=False) as origin:
        asyncio.run(go(origin.image_urls[0]))
        assert len(origin.requests) == 15
        assert len({request.peer for request in origin.requests}) == 3


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    assert retry_after_s("7") == 7
    assert retry_after_s(" 0 ") == 0
    soon = retry_after_s(formatdate(usegmt=True, timeval=None))
    assert soon is not None
    assert 0 <= soon <= 1
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after_s("soon") is None
    assert retry_after_s("-5") is None
    assert retry_after_s(None) is None
