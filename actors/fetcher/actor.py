"""The fetcher process: reads the source, downloads pages ahead, decodes them into the arena when asked.

One event loop. What is held of a page (a task while it is downloaded, then its bytes) lives here and nowhere
else; how each of these is done is the other modules'.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from actors import childlog, heap
from actors.fetcher.budget import Budget
from actors.fetcher.cache import ImageCache, usable_bucket
from actors.fetcher.decoding import Decoding
from actors.fetcher.download import Downloads, PageLost
from actors.fetcher.errors import FetchError
from actors.fetcher.http import Client
from actors.fetcher.judging import Judge
from actors.fetcher.pacing import Pacing
from actors.fetcher.sizes import cache_identity
from actors.fetcher.source import Page, Source
from actors.fetcher.source_reading import SourceLost, read_source
from actors.messages import (
    FAILED,
    CacheStored,
    Decode,
    DecodeFailed,
    Fetch,
    Fetched,
    FetchFailed,
    FetchStarted,
    Forget,
    LogLevel,
    ReadSource,
    SourceFailed,
    SourceRead,
    Stop,
)
from actors.specs import FetcherSpec
from supervisor.queues import Channel
from supervisor.wire import bounded

if TYPE_CHECKING:
    from actors.fetcher.images import Header

log = logging.getLogger(__name__)

BEAT_S = 0.5
OFF, HIT, MISS = "off", "hit", "miss"
Message = ReadSource | Fetch | Decode | Forget | LogLevel | Stop


def main(channel: Channel, spec: FetcherSpec, descriptors: dict[str, int]) -> None:
    """Serve the supervisor until it says stop.

    Raises:
        EOFError: it is gone.
    """
    childlog.setup("fetcher", spec.log_level, channel)
    heap.give_back_freed()
    asyncio.run(Fetcher(channel, spec, descriptors["arena"]).run())


@dataclass(frozen=True, slots=True)
class Held:
    """A fetched page, until it is decoded."""

    data: bytes
    header: Header


class Fetcher:
    """One event loop, from `run`'s start to its end."""

    def __init__(self, channel: Channel, spec: FetcherSpec, arena_fd: int) -> None:
        self._channel, self._spec = channel, spec
        self._decoding = Decoding(
            channel, arena_fd, arena_bytes=spec.arena_bytes, reserved=spec.arena_reserved, threads=spec.decode_threads
        )
        self._judge = Judge(max_pixels=spec.max_image_pixels, arena_bytes=spec.arena_bytes)
        self._budget = Budget(spec.lookahead_bytes)
        self._client = Client(
            user_agent=spec.user_agent, deadline_s=spec.download_deadline_s, allow_private=spec.allow_private
        )
        self._downloads = Downloads(
            self._client, Pacing(spec.download_concurrency), self._budget, self._judge,
            most_bytes=spec.fetch_max_bytes, max_width=spec.max_image_width,
        )  # fmt: skip
        self._cache: ImageCache | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._storing: dict[int, asyncio.Task[None]] = {}
        self._held: dict[int, Held] = {}

    async def run(self) -> None:
        """Until Stop; raises what a task of its own raised, or EOFError when the supervisor is gone."""
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._source: asyncio.Future[Source] = loop.create_future()
        self._decoding.prepare().add_done_callback(self._watch)
        self._spawn(self._beat())
        loop.add_reader(self._channel.fileno(), self._read_inbox)
        try:
            async with self._client:
                await self._ended
        finally:
            loop.remove_reader(self._channel.fileno())
            for task in self._tasks:
                task.cancel()
            for threads in (self._decoding, self._judge, self._cache):
                if threads is not None:
                    threads.close()

    # --- dispatch

    async def _beat(self) -> None:
        while True:
            self._channel.marks.beat()
            await asyncio.sleep(BEAT_S)

    def _read_inbox(self) -> None:
        try:
            for message in self._channel.take():
                self._handle(message)
        except EOFError as e:
            self._end(e)

    def _handle(self, message: Message) -> None:
        match message:
            case ReadSource(reuse):
                self._spawn(self._read_source(reuse))
            case Fetch(pages):
                for page in pages:
                    if page not in self._fetching and page not in self._held:
                        self._fetching[page] = self._spawn(self._fetch(page))
            case Decode():
                self._spawn(self._decode(message))
            case Forget(pages):
                for page in pages:
                    self._forget(page)
            case LogLevel(level):
                childlog.set_level(level)
            case Stop(within_s):
                self._spawn(self._stop(within_s))
            case _:
                assert_never(message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` beside the others; what it raises ends the process, which is then started anew."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._watch)
        return task

    def _watch(self, done: asyncio.Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._end(error)

    def _end(self, error: BaseException | None = None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    async def _stop(self, within_s: float) -> None:
        """Let what the image cache is being given get there, then end."""
        for task in self._fetching.values():
            task.cancel()
        if self._storing:
            await asyncio.wait(self._storing.values(), timeout=within_s)
        self._end()

    # --- pages

    async def _read_source(self, reuse: bool) -> None:
        named = self._spec.cache_bucket
        if named is not None and named != self._spec.results_bucket:
            self._cache = ImageCache(self._spec, named)  # Its client is made while the manifest is on its way.
        try:
            source = await read_source(self._client, self._spec, reuse=reuse)
        except SourceLost as e:
            self._channel.send(SourceFailed(e.permanent, bounded(str(e)), e.workdir_full))
            return
        if usable_bucket(self._spec, len(source.pages)) is None and self._cache is not None:
            self._cache.close()
            self._cache = None
        if not self._source.done():
            self._source.set_result(source)
        self._channel.send(SourceRead(len(source.pages), source.total))

    async def _fetch(self, number: int) -> None:
        """Download one page, or take it from the cache, and say what came of it."""
        try:
            if number in self._leaving:
                await asyncio.wait({self._leaving[number]})
            page = (await asyncio.shield(self._source)).pages[number - 1]
            if page.error is not None:
                self._channel.send(FetchFailed(number, FAILED, bounded(page.error)))
                return
            await self._fetch_image(number, page)
        except PageLost as e:
            self._channel.send(FetchFailed(number, e.outcome, bounded(str(e)), e.wire_bytes))
        finally:
            if self._fetching.get(number) is asyncio.current_task():
                del self._fetching[number]
            self._leaving.pop(number, None)

    async def _fetch_image(self, number: int, page: Page) -> None:
        started_at: float | None = None

        def started() -> None:
            nonlocal started_at
            if started_at is None:
                started_at = time.monotonic()
                self._channel.send(FetchStarted(number))

        cache = self._cache
        identity = cache_identity(page.url) if cache else ""
        held = await self._cached(cache, number, identity, started) if cache else None
        origin_bytes, said = 0, HIT
        if held is None:
            image = await self._downloads.image(number, page, started)
            held, origin_bytes = Held(image.data, image.header), image.wire_bytes
            said = MISS if cache else OFF
        self._held[number] = held
        seconds = time.monotonic() - (started_at or time.monotonic())
        header = held.header
        self._channel.send(Fetched(number, len(held.data), origin_bytes, header.width, header.height, seconds, said))
        if cache is not None and said == MISS and cache.on:
            self._storing[number] = self._spawn(self._store(cache, number, identity, held.data))

    async def _cached(self, cache: ImageCache, number: int, identity: str, started: Any) -> Held | None:
        """The page from the cache, held in the budget; None when it has to be downloaded."""
        if not cache.on:
            return None
        await self._budget.admit(number, None)
        try:
            started()
            data = await cache.read(number, identity)
            if data is None:
                return None
            held = Held(data, await self._judge(data, "", f"page {number} in the image cache"))
            self._budget.hold(number, len(data))
            return held
        except FetchError as e:
            log.info("%s; it is downloaded again", e)
            return None
        finally:
            if not self._budget.holds(number):
                self._budget.release(number)

    async def _store(self, cache: ImageCache, number: int, identity: str, data: bytes) -> None:
        try:
            if await cache.store(number, identity, data):
                self._channel.send(CacheStored(number))
        finally:
            self._storing.pop(number, None)
            self._let_go(number)

    async def _decode(self, order: Decode) -> None:
        held = self._held.get(order.page)
        if held is None:
            self._channel.send(DecodeFailed(order.page, "its bytes are not held"))
            return
        await self._decoding.decode(order, held.data, held.header.format)
        if self._held.get(order.page) is held:
            del self._held[order.page]
        self._let_go(order.page)

    def _forget(self, page: int) -> None:
        """Drop a page. One whose decoding has begun is answered all the same: its block is written until then."""
        task = self._fetching.pop(page, None)
        if task is not None:
            task.cancel()
            self._leaving[page] = task  # Asked for again, the page waits until this one has let go.
        self._held.pop(page, None)
        self._let_go(page)

    def _let_go(self, page: int) -> None:
        """Its bytes make room once nobody has them any more."""
        if page not in self._held and page not in self._storing and page not in self._fetching:
            self._budget.release(page)
