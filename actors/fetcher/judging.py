"""Whether a body that arrived may be a page: the checks that every download and every cache hit passes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from actors.fetcher.errors import Denied, TooLarge, Unavailable

if TYPE_CHECKING:
    from actors.fetcher.images import Header

RGB_BYTES = 3


class Judge:
    """Judges by bytes and header, in threads; imports Pillow with the first body. Limits are pixels and bytes."""

    def __init__(self, *, max_pixels: int, arena_bytes: int) -> None:
        self._max_pixels, self._arena_bytes = max_pixels, arena_bytes
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="judge")

    async def __call__(self, data: bytes, content_type: str, shown: str) -> Header:
        """The header of `data`; `shown` names where it came from.

        Raises:
            Denied: it is no image, its header is broken, or it is too large.
            Unavailable: it is a web page.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._judge, data, content_type, shown)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _judge(self, data: bytes, content_type: str, shown: str) -> Header:
        from actors.fetcher import images

        if images.signature(data) is None and images.looks_like_html(data, content_type):
            raise Unavailable(f"an HTML page instead of an image: {shown}")
        try:
            header = images.header(data, self._max_pixels)
        except images.ImageError as e:
            raise Denied(f"{e}: {shown}") from e
        needed = header.width * header.height * RGB_BYTES
        if needed > self._arena_bytes:
            raise TooLarge(
                f"{header.width} x {header.height} pixels need {needed} bytes, more than all "
                f"{self._arena_bytes} of PIXEL_ARENA_BYTES: {shown}"
            )
        return header
