"""The client's side of the debug socket: asks once, or follows a stream. Imports no tables and no screens."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.debug import protocol
from supervisor.debug.protocol import MAX_REPLY_BYTES, Kind, Refused
from supervisor.wire import FrameBuffer, FrameError


class Unreachable(Exception):
    """Nobody answers at the socket; the text names it and the likely cause."""


class Silent(Unreachable):
    """Somebody holds the socket but does not answer in time."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`age_s`: how old the published snapshot behind `data` was, in seconds."""

    data: Any
    age_s: float


def ask(path: Path, command: str, arguments: dict[str, Any], timeout_s: float) -> Reply:
    """One request and its reply, within `timeout_s`.

    Raises:
        Unreachable: nobody answers.
        Refused: the answer is no.
    """
    with _connected(path, timeout_s) as connection:
        _send(connection, protocol.request(command, arguments))
        return next(_replies(connection, path, timeout_s))


def follow(path: Path, command: str, arguments: dict[str, Any], timeout_s: float) -> Iterator[Reply]:
    """A stream of replies; the first must come within `timeout_s`, the others whenever there is something new.

    Raises: as `ask`; a stream that ends raises Unreachable.
    """
    with _connected(path, timeout_s) as connection:
        _send(connection, protocol.request(command, arguments, stream=True))
        replies = _replies(connection, path, timeout_s)
        yield next(replies)
        connection.settimeout(None)
        yield from replies


def reply_of(payload: bytes) -> Reply:
    """One payload as a reply.

    Raises:
        Refused: it says no, or is none.
    """
    value = protocol.parse(payload)
    if value.get("ok") is True:
        return Reply(value.get("data"), float(value.get("age_s", 0.0)))
    kind, error = str(value.get("kind")), str(value.get("error"))
    raise Refused(Kind(kind) if kind in list(Kind) else Kind.PROTOCOL, error)


def why_not(path: Path, error: OSError) -> Unreachable:
    """What an error of the connection means to a person."""
    match error:
        case FileNotFoundError():
            text = f"there is no socket at {path}: no run is working there, or it has ended"
        case ConnectionRefusedError():
            text = (
                f"nobody listens at {path}: the run that made it was killed; the next run in that directory "
                "replaces the socket, nothing needs to be cleared away"
            )
        case PermissionError():
            text = f"uid {os.geteuid()} may not open {path}: ask as the user that the run belongs to, or as root"
        case BlockingIOError():
            return Silent(f"too many clients wait at {path}: its loop is held up, or ask again in a moment")
        case ConnectionResetError() | BrokenPipeError():
            text = f"the run has closed the connection at {path}: it has ended, or this client read too slowly"
        case _:
            text = f"{path} cannot be reached: {error.strerror or error}"
    return Unreachable(text)


def loop_age_s(path: Path) -> float | None:
    """How long ago the supervisor's loop last published, by the socket's time stamp; needs no answer from it."""
    try:
        return max(0.0, time.time() - path.lstat().st_mtime)
    except OSError:
        return None


def silence(path: Path, timeout_s: float) -> Silent:
    """Connected, and no answer came."""
    age_s = loop_age_s(path)
    last = f"; its loop last turned {age_s:.0f} s ago" if age_s is not None else ""
    text = f"no answer from {path} within {timeout_s:g} s{last}"
    return Silent(f"{text}: the supervising process is stopped, starved of CPU, or is not one of ours")


def foreign(path: Path) -> Unreachable:
    """Somebody answers, and it is no supervisor."""
    return Unreachable(f"what listens at {path} does not speak this protocol: it is not a run of ours")


def trust(connection: socket.socket, path: Path) -> None:
    """Believe nobody but the user who asks, and root: in a shared directory anybody may have put a socket there.

    Raises:
        Unreachable: somebody else listens.
    """
    _, uid = protocol.peer_of(connection)
    if os.geteuid() not in (0, uid) and uid != 0:
        raise Unreachable(f"uid {uid} listens at {path}, not uid {os.geteuid()} who asks: it is not believed")


@contextmanager
def _connected(path: Path, timeout_s: float) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
        except TimeoutError:
            raise silence(path, timeout_s) from None
        except OSError as e:
            raise why_not(path, e) from None
        trust(connection, path)
        yield connection


def _send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError, TimeoutError):
        return  # It may have said why: the reply is read next.


def _replies(connection: socket.socket, path: Path, timeout_s: float) -> Iterator[Reply]:
    frames = FrameBuffer(MAX_REPLY_BYTES)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            data = connection.recv(1 << 16)
        except TimeoutError:
            raise silence(path, timeout_s) from None
        except OSError as e:
            raise why_not(path, e) from None
        if not data:
            raise why_not(path, ConnectionResetError())
        try:
            payloads = frames.feed(data)
        except FrameError:
            raise foreign(path) from None
        yield from map(reply_of, payloads)
        if connection.gettimeout() is not None and not payloads:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise silence(path, timeout_s)
            connection.settimeout(left_s)
