"""What goes over the debug socket: a length, then JSON; one request, one reply (or a stream of replies).

Owns the shapes and their bounds; both ends use it. A request is `{"protocol", "command", "arguments", "stream"}`, a
reply `{"protocol", "ok": true, "age_s", "data"}` or `{"protocol", "ok": false, "kind", "error"}`; `age_s` is the age of
the published snapshot behind it, in seconds.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Any

import orjson

PROTOCOL = 1
HEADER = struct.Struct("!I")
MAX_REQUEST_BYTES = 64 * 1024
MAX_REPLY_BYTES = 64 << 20
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


class FrameTooLong(Exception):
    """A length over what this end takes; nothing after it on that connection can be read."""


class Frames:
    """Cuts a byte stream into payloads; a length over `limit_bytes` is refused before its body is taken."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads completed by `data`.

        Raises:
            FrameTooLong: the next frame says that it is longer than the limit.
        """
        self._bytes += data
        payloads = []
        while len(self._bytes) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._bytes)
            if length > self._limit_bytes:
                raise FrameTooLong(f"{length} bytes are announced, and {self._limit_bytes} are the most")
            if len(self._bytes) < HEADER.size + length:
                break
            payloads.append(bytes(self._bytes[HEADER.size : HEADER.size + length]))
            del self._bytes[: HEADER.size + length]
        return payloads

    @property
    def partial(self) -> bool:
        """Whether part of a frame has come."""
        return bool(self._bytes)


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
