"""A response's body as it arrives: inflated where it is gzip, and never a byte over its limit."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable

from actors.fetcher.errors import Denied, TooLarge, Unavailable

_GZIP = 31
"""zlib's window bits for a gzip header."""
_PIECE_BYTES = 2**18


def encoding_of(header: str) -> str:
    """`identity` or `gzip`.

    Raises:
        Denied: another content encoding, which was not asked for.
    """
    named = [part.strip().lower() for part in header.split(",") if part.strip()]
    used = [name for name in named if name != "identity"]
    if not used:
        return "identity"
    if used in (["gzip"], ["x-gzip"]):
        return "gzip"
    raise Denied(f"the body has the content encoding {header[:40]!r}, and only gzip was asked for")


class Body:
    """Collects decoded bytes. `arrived` hears their total before they are kept, and may raise."""

    def __init__(self, encoding: str, most_bytes: int, arrived: Callable[[int], None]) -> None:
        self.wire_bytes = 0
        self._kept = io.BytesIO()
        self._most_bytes, self._arrived = most_bytes, arrived
        self._inflate = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    @property
    def data(self) -> bytes:
        """What has been kept so far, without a copy once nothing more comes."""
        return self._kept.getvalue()

    def feed(self, data: bytes) -> None:
        """Take what came from the wire.

        Raises:
            TooLarge: the decoded body is over its limit.
            Unavailable: it is not the gzip that it claims to be.
        """
        self.wire_bytes += len(data)
        if self._inflate is None:
            self._keep(data)
            return
        try:
            self._feed_gzip(data)
        except zlib.error as e:
            raise Unavailable(f"the body does not inflate ({e})") from e

    def finish(self) -> None:
        """The wire is at its end.

        Raises:
            Unavailable: the gzip stream is not.
        """
        if self._inflate is not None and not self._inflate.eof and self.wire_bytes:
            raise Unavailable(f"a short body: its gzip stream breaks off after {self._kept.tell()} decoded bytes")

    def _feed_gzip(self, data: bytes) -> None:
        while data:
            assert self._inflate is not None
            if self._inflate.eof:  # The next member of the stream; padding after the last one is let through.
                if not data.lstrip(b"\0"):
                    return
                self._inflate = zlib.decompressobj(_GZIP)
            piece = self._inflate.decompress(data, _PIECE_BYTES)
            self._keep(piece)
            data = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        # A full last piece may have left output inside zlib; it comes out with the next bytes or here.
        while self._inflate and not self._inflate.eof and (piece := self._inflate.decompress(b"", _PIECE_BYTES)):
            self._keep(piece)

    def _keep(self, piece: bytes) -> None:
        size = self._kept.tell() + len(piece)
        if size > self._most_bytes:
            raise TooLarge(f"more than {self._most_bytes} bytes")
        self._arrived(size)
        self._kept.write(piece)
