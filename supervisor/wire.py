"""Frames: how one message becomes bytes on a pipe and back.

Owns the size limit and the encoding; does not own descriptors (queues.py) nor what messages mean. Messages are
frozen dataclasses of plain values (str, int, float, bool, None, tuples of those), written as JSON rather than
pickled, so that a process which runs model code cannot run code in the supervisor.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import orjson

HEADER = struct.Struct("!I")
MAX_PAYLOAD_BYTES = 4092
"""With its 4-byte header a frame is at most PIPE_BUF (4,096 bytes), so a write is atomic and a killed writer never
leaves half a message (measured: frames over that size are torn, frames up to it never)."""


class FrameError(Exception):
    """The bytes on a queue are not a message of its protocol."""


def bounded(text: str, characters: int = 1000, size_bytes: int = 2400) -> str:
    """`text` clipped so that it fits into a message: at most `characters` long and `size_bytes` once encoded."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    clipped = text[:characters]
    while len(orjson.dumps(clipped)) > size_bytes:
        clipped = clipped[: int(len(clipped) * 0.9)]
    return clipped if clipped == text else clipped[:-3] + "..."


class Codec:
    """Encodes and decodes a closed set of message types."""

    def __init__(self, *types: type) -> None:
        self._types = {t.__name__: t for t in types}
        self._fields = {t.__name__: tuple(f.name for f in dataclasses.fields(t)) for t in types}

    def encode(self, message: Any) -> bytes:
        """One frame, header included.

        Raises:
            FrameError: the type is not in this codec, or the payload is over MAX_PAYLOAD_BYTES.
        """
        name = message.__class__.__name__
        if name not in self._types:
            raise FrameError(f"{name} is not a message of this queue")
        fields = [getattr(message, field) for field in self._fields[name]]
        payload = orjson.dumps([name, fields])
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise FrameError(f"{name} is {len(payload)} bytes; a message may have {MAX_PAYLOAD_BYTES}")
        return HEADER.pack(len(payload)) + payload

    def decode(self, payload: bytes) -> Any:
        """The message in one frame's payload.

        Raises:
            FrameError: it is not JSON, or not one of this codec's messages.
        """
        try:
            name, fields = orjson.loads(payload)
            return self._types[name](*[tuple(f) if isinstance(f, list) else f for f in fields])
        except (ValueError, TypeError, KeyError) as e:
            raise FrameError(f"not a message of this queue: {e!r}") from e


class FrameBuffer:
    """Cuts a byte stream into payloads; what is incomplete stays until more bytes come. A payload over `limit_bytes` is
    refused by its header, before its body is taken."""

    def __init__(self, limit_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads completed by `data`.

        Raises:
            FrameError: a header announces more than the limit; nothing after it can be read.
        """
        self._bytes += data
        payloads = []
        while len(self._bytes) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._bytes)
            if length > self._limit_bytes:
                raise FrameError(f"a frame announces {length} bytes; a message may have {self._limit_bytes}")
            if len(self._bytes) < HEADER.size + length:
                break
            payloads.append(bytes(self._bytes[HEADER.size : HEADER.size + length]))
            del self._bytes[: HEADER.size + length]
        return payloads

    @property
    def torn(self) -> bool:
        """Whether part of a frame is left, as after a writer that died in the middle of one."""
        return bool(self._bytes)
