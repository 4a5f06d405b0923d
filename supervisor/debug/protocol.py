"""What goes over the debug socket: a length, then JSON; one request, one reply (or a stream of replies).

Owns the shapes and their bounds; both ends use it, and cut what comes with wire.py's FrameBuffer. A request is
`{"protocol", "command", "arguments", "stream"}`, a reply `{"protocol", "ok": true, "age_s", "data"}` or `{"protocol",
"ok": false, "kind", "error"}`; `age_s` is the age of the published snapshot behind it, in seconds.
"""

from __future__ import annotations

import socket
import struct
from enum import StrEnum
from typing import Any

import orjson

from supervisor.wire import HEADER

PROTOCOL = 1
MAX_REQUEST_BYTES = 64 * 1024
MAX_REPLY_BYTES = 64 << 20
_CREDENTIALS = struct.Struct("3i")
SKEW = "use the batchpod-debug of the image that the run was started from"


class Kind(StrEnum):
    """Why a request was not answered with data."""

    USAGE = "usage"
    NOT_RUNNING = "not running"
    PROTOCOL = "protocol"
    BUSY = "busy"
    INTERNAL = "internal"


class Refused(Exception):
    """A request that gets no data; the text is a sentence for the person who asked."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The pid and the uid of whoever holds the other end, by the kernel's word: who connected, or who listens."""
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(given)
    return pid, uid


def frame(value: Any) -> bytes:
    """One frame, header included."""
    payload = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    return HEADER.pack(len(payload)) + payload


def request(command: str, arguments: dict[str, Any], *, stream: bool = False) -> bytes:
    return frame({"protocol": PROTOCOL, "command": command, "arguments": arguments, "stream": stream})


def answer(data: Any, age_s: float) -> bytes:
    return frame({"protocol": PROTOCOL, "ok": True, "age_s": round(age_s, 3), "data": data})


def refusal(kind: Kind, text: str) -> bytes:
    return frame({"protocol": PROTOCOL, "ok": False, "kind": kind, "error": text})


def parse(payload: bytes) -> dict[str, Any]:
    """One request or reply as an object of this protocol.

    Raises:
        Refused: it is no JSON object, or of another protocol number.
    """
    try:
        value = orjson.loads(payload)
    except ValueError:
        raise Refused(Kind.PROTOCOL, "what came is not JSON") from None
    if not isinstance(value, dict):
        raise Refused(Kind.PROTOCOL, "what came is not a JSON object")
    if value.get("protocol") != PROTOCOL:
        said = str(value.get("protocol"))[:20]
        raise Refused(Kind.PROTOCOL, f"protocol {PROTOCOL} is spoken here, and this is protocol {said}: {SKEW}")
    return value
