"""Decoding into the arena, in threads that say what they are at, so that one which hangs or dies can be blamed."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from actors.messages import Decode, Decoded, DecodeFailed, DecodeStarted
from supervisor import arena
from supervisor.queues import Channel
from supervisor.wire import bounded

log = logging.getLogger(__name__)

STEP = "decode"


class Decoding:
    """The arena as this process maps it, and the threads that write to it."""

    def __init__(self, channel: Channel, fd: int, *, arena_bytes: int, reserved: bool, threads: int) -> None:
        self._channel, self._fd, self._arena_bytes, self._reserved = channel, fd, arena_bytes, reserved
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=STEP)
        self._pixels: asyncio.Future[memoryview] | None = None

    def prepare(self) -> asyncio.Future[memoryview]:
        """Begin to take the arena's memory and to import the decoders, in a thread; whoever decodes waits for it."""
        loop = asyncio.get_running_loop()
        self._pixels = loop.run_in_executor(self._threads, self._mapped)
        return self._pixels

    async def decode(self, order: Decode, data: bytes, name: str) -> None:
        """Decode `data`, a `name` (its format), into the block of `order`; the answer is sent from the thread."""
        assert self._pixels is not None
        pixels = await asyncio.shield(self._pixels)
        block = pixels[order.offset : order.offset + order.length]
        await asyncio.get_running_loop().run_in_executor(self._threads, self._decode, order.page, data, name, block)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _mapped(self) -> memoryview:
        started_at = time.monotonic()
        if not self._reserved:
            try:
                arena.reserve(self._fd, self._arena_bytes)
            except OSError as e:
                log.error("no memory for the %d bytes of PIXEL_ARENA_BYTES: %s", self._arena_bytes, e)
                raise
        view = arena.view(self._fd, self._arena_bytes, writable=True)
        importlib.import_module("actors.fetcher.images")
        log.debug("arena mapped and decoders imported in %.2f s", time.monotonic() - started_at)
        return view

    def _decode(self, page: int, data: bytes, name: str, block: memoryview) -> None:
        from actors.fetcher.images import ImageError, decode_into

        self._channel.send(DecodeStarted(page))
        self._channel.marks.mark(page, STEP, name)
        started_at = time.monotonic()
        answer: Decoded | DecodeFailed
        try:
            decode_into(data, block)
            answer = Decoded(page, time.monotonic() - started_at)
        except ImageError as e:
            answer = DecodeFailed(page, bounded(str(e)))
        finally:
            self._channel.marks.clear(page)
        self._channel.send(answer)
