"""The debug socket, served from the supervisor's own loop: nothing here waits, and nobody who connects can hold it.

Owns connections and their bounds; what a command does is the function's that it is registered with. Every reading of a
request, every reply and every drop happens when the loop says that a descriptor is ready, or once a turn (`tend`).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.debug import protocol
from supervisor.debug.protocol import Kind, Refused
from supervisor.loop import Loop
from supervisor.wire import FrameBuffer, FrameError

BACKLOG = 64
MAX_CLIENTS = 32
REQUEST_S = 5.0
"""Within this a request must have come whole."""
DRAIN_S = 10.0
"""Within this a reply must have been read."""
BUFFER_BYTES = 8 << 20
"""What one client may leave unread before it is dropped."""
LATER_POLL_S = 0.02

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, by the kernel's word."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"uid {self.uid} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that is not there yet: `poll` is called every turn until it gives one (or raises Refused)."""

    poll: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Following:
    """A stream of answers: `pull` is called at once and then at every `push`; None sends nothing."""

    pull: Callable[[], Any]


Command = Callable[[Mapping[str, Any], Caller], Any]
"""Gives what is sent as JSON, or Later, or Following. Must not wait. Raises Refused with a sentence."""


class Server:
    """Listens at `path`; `age_s` gives the age of the snapshot that the commands answer from.

    Raises:
        OSError: no socket can be had there.
    """

    def __init__(self, loop: Loop, path: Path, commands: Mapping[str, Command], age_s: Callable[[], float]) -> None:
        self._loop, self._path, self._commands, self._age_s = loop, path, commands, age_s
        self._peers: list[_Peer] = []
        self._allowed = {0, os.geteuid()}
        self._listening = True
        self._socket = _listen(path)
        loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Send streams the last that is new, drop every client, stop listening and remove the socket's name."""
        self.push()
        for peer in list(self._peers):
            self.drop(peer)
        self._loop.remove(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def tend(self) -> None:
        """Once a turn: answers that have become ready, clients whose time is up."""
        now = self._loop.clock.now()
        for peer in list(self._peers):
            peer.tend(now)
        if not self._listening:
            self._listening = True
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def push(self) -> None:
        """The loop has published: send streams what is new, and leave a sign of life that needs no answer."""
        for peer in list(self._peers):
            peer.push()
        with contextlib.suppress(OSError):
            os.utime(self._path, follow_symlinks=False)

    @property
    def soonest_s(self) -> float:
        """How soon `tend` should be called again; infinite while nobody waits for it."""
        return LATER_POLL_S if any(peer.later for peer in self._peers) else math.inf

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as e:
                # Without a free descriptor the socket stays readable: look again at the next turn.
                log.warning("the debug socket takes nobody now: %s", e)
                self._loop.remove(self._socket.fileno())
                self._listening = False
                return
            self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        pid, uid = protocol.peer_of(connection)
        refusal = b""
        if uid not in self._allowed:
            refusal = protocol.refusal(Kind.USAGE, f"uid {uid} may not look in here: ask as uid {os.geteuid()}")
        elif len(self._peers) >= MAX_CLIENTS:
            refusal = protocol.refusal(Kind.BUSY, f"{MAX_CLIENTS} clients are connected: ask again in a moment")
        if refusal:
            with contextlib.suppress(OSError):
                connection.send(refusal)
            connection.close()
            return
        peer = _Peer(self, connection, Caller(pid, uid))
        self._peers.append(peer)
        peer.listen()

    # -------------------------------------------------------------------------------------------- for the peers

    @property
    def loop(self) -> Loop:
        return self._loop

    def drop(self, peer: _Peer) -> None:
        if peer in self._peers:
            self._peers.remove(peer)
            self._loop.remove(peer.socket.fileno())
            peer.socket.close()

    def answer(self, payload: bytes, caller: Caller) -> Any:
        """What the command gives.

        Raises:
            Refused: there is no such command, the request is none, or the command says no.
        """
        asked = protocol.parse(payload)
        name, arguments = asked.get("command"), asked.get("arguments", {})
        command = self._commands.get(name) if isinstance(name, str) else None
        if command is None:
            known = ", ".join(self._commands)
            raise Refused(Kind.USAGE, f"there is no command {str(name)[:40]!r}; there are {known}")
        if not isinstance(arguments, dict):
            raise Refused(Kind.USAGE, "the arguments are not an object")
        given = command(arguments, caller)
        if isinstance(given, Following) and not asked.get("stream"):
            return given.pull()
        return given

    def framed(self, give: Callable[[], Any]) -> Any:
        """The reply to send for what `give()` gives or refuses; Later, Following and None as they are."""
        try:
            given = give()
            if given is None or isinstance(given, Later | Following):
                return given
            return protocol.answer(given, self._age_s())
        except Refused as e:
            return protocol.refusal(e.kind, str(e))
        except Exception as e:  # A fault in a command must not end the run.
            log.exception("a debug command failed, the run goes on")
            return protocol.refusal(Kind.INTERNAL, f"the command failed: {type(e).__name__}: {e}"[:500])


class _Peer:
    """One connection: a request comes in, one reply or a stream goes out."""

    def __init__(self, server: Server, connection: socket.socket, caller: Caller) -> None:
        self._server, self.socket, self._caller = server, connection, caller
        self._frames = FrameBuffer(protocol.MAX_REQUEST_BYTES)
        self._out = bytearray()
        self._since_at = server.loop.clock.now()
        self._answered = False
        self.later: Later | None = None
        self._following: Following | None = None

    def listen(self) -> None:
        self._server.loop.watch(self.socket.fileno(), self._ready, write=bool(self._out))

    @property
    def _gone(self) -> bool:
        return self.socket.fileno() < 0

    def _ready(self) -> None:
        if not self._gone:
            self._read()
        if not self._gone and self._out:
            self._flush()

    def _read(self) -> None:
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or self._answered:
            # It has left, or says more than its one request.
            self._server.drop(self)
            return
        try:
            payloads = self._frames.feed(data)
        except FrameError as e:
            self._reply(protocol.refusal(Kind.PROTOCOL, f"this request is too long: {e}"))
            return
        if payloads:
            self._take(self._server.framed(lambda: self._server.answer(payloads[0], self._caller)))

    def _take(self, given: Any) -> None:
        match given:
            case Later():
                self._answered, self.later = True, given
            case Following():
                self._answered, self._following = True, given
                self.push()
            case bytes():
                self._reply(given)

    def _reply(self, data: bytes) -> None:
        """The one reply: the connection ends once it is read."""
        self._answered, self.later, self._following = True, None, None
        self._send(data)

    def _send(self, data: bytes) -> None:
        if len(self._out) + len(data) > BUFFER_BYTES:
            self._server.drop(self)
            return
        if not self._out:
            self._since_at = self._server.loop.clock.now()
        self._out += data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self.socket.send(self._out)]
                self._since_at = self._server.loop.clock.now()
        except BlockingIOError:
            self.listen()
            return
        except OSError:
            self._server.drop(self)
            return
        if self._answered and self.later is None and self._following is None:
            self._server.drop(self)
        else:
            self.listen()

    def push(self) -> None:
        if self._following is None:
            return
        given = self._server.framed(self._following.pull)
        if given is not None:
            self._send(given)

    def tend(self, now: float) -> None:
        if self.later is not None:
            poll = self.later.poll
            given = self._server.framed(poll)
            if given is not None:
                self._reply(given)
        elif self._out:
            if now - self._since_at >= DRAIN_S:
                self._server.drop(self)
        elif not self._answered and now - self._since_at >= REQUEST_S:
            part = "only half of a request" if self._frames.torn else "no request"
            self._reply(protocol.refusal(Kind.PROTOCOL, f"{part} has come within {REQUEST_S:g} s"))


def _listen(path: Path) -> socket.socket:
    """A listening socket at `path` that only its owner may open; a stale one there is replaced.

    Whoever calls holds the working directory's lock, so nobody alive can be listening there.
    """
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    mask = os.umask(0o177)
    try:
        made.bind(str(path))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    finally:
        os.umask(mask)
    return made
