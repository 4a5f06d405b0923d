"""Routes pages between the actors: fetch ahead, decode into the arena, hand to the GPU, upload.

Owns the flow and its bounds (lookahead, arena, backlog) and every page's outcome. Who is blamed for a dead process is
blame.py's, the processes are gpus.py's and services.py's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from actors.messages import (
    CacheStored,
    Decode,
    Decoded,
    DecodeFailed,
    DecodeStarted,
    Exported,
    Fetch,
    Fetched,
    FetchFailed,
    FetchStarted,
    Forget,
    PageFailed,
    PageStarted,
    Upload,
    Uploaded,
    UploadFailed,
    UploadStarted,
    page_name,
)
from batchpod.accounts import Counters, Idle, StallClock
from batchpod.config import Config
from batchpod.errors import Cause, Transient
from batchpod.gpus import Gpus, Phase, Slot
from batchpod.ledger import Ledger, Page, State
from batchpod.services import Service
from supervisor.arena import Arena
from supervisor.loop import Loop

DECODE_DEATHS_ALONE = 2
STORE_FAILURES = 5
ORIGIN_LEAST = 10


class Stream:
    """One volume's pages on their way. `say` writes one line into the run log."""

    def __init__(
        self, config: Config, loop: Loop, fetcher: Service, uploader: Service, say: Callable[[str], None]
    ) -> None:
        self._config, self._loop, self._fetcher, self._uploader, self._say = config, loop, fetcher, uploader, say
        self.ledger = Ledger(0)
        self.gpus: Gpus | None = None
        self.arena = Arena(config.pixel_arena_bytes)
        self.stalls = StallClock()
        self.counters = Counters()
        self.lookahead_pages = config.lookahead_pages
        self.paused = False
        self.started = False
        self.origin_down = False
        self.suspects: deque[int] = deque()
        self.text_lost: set[int] = set()
        self.last_page: int | None = None
        self.last_error: tuple[int, str] | None = None
        self._decoding: set[int] = set()
        self._decode_alone: dict[int, int] = {}
        self._deferred_in_row = 0
        self._store_failures = 0
        self._backlog_said = False

    def begin(self, count: int) -> None:
        self.ledger = Ledger(count)

    # -------------------------------------------------------------------------------------------------------- routing

    def route(self) -> None:
        """Hand out whatever can be handed out now."""
        if not self.started:
            return
        self._order_fetches()
        self._order_decodes()
        self._feed_gpus()
        self._account()

    @property
    def over(self) -> bool:
        """Whether every page has its outcome."""
        return self.started and self.ledger.unfinished == 0

    def _order_fetches(self) -> None:
        ahead = self.ledger.count(State.FETCHING, State.FETCHED, State.DECODING, State.READY)
        room = self.lookahead_pages - ahead
        if room <= 0 or self.origin_down:
            return
        wanted = sorted(self.ledger.numbers(State.WAITING)[: room * 2 + 64])[:room]
        for number in wanted:
            self.ledger.move(number, State.FETCHING, "asked for", "fetcher")
        for start in range(0, len(wanted), 200):
            self._fetcher.send(Fetch(tuple(wanted[start : start + 200])))

    def _order_decodes(self) -> None:
        now = self._loop.clock.now()
        in_use = {lent.key for lent in self.arena.lent}
        alone = [n for n in self._decode_alone if self.ledger[n].state is State.FETCHED]
        if any(n in self._decode_alone for n in self._decoding):
            return
        for page in self.ledger.each(State.FETCHED):
            if page.number not in in_use and not self.arena.wanted(page.number):
                self.arena.request(page.number, page.pixel_bytes, now)
        if alone:
            if not self._decoding:
                self._grant_alone(alone[0], now)
            return
        for number, block in self.arena.grants("fetcher", now):
            self._decode(number, block.offset, block.length)

    def _grant_alone(self, number: int, now: float) -> None:
        """A page that was being decoded when the fetcher died is decoded with no other beside it."""
        for key, block in self.arena.grants("fetcher", now, only=number):
            self._decode(key, block.offset, block.length)

    def _decode(self, number: int, offset: int, length: int) -> None:
        self._decoding.add(number)
        self.ledger.move(number, State.DECODING, "has its block", "fetcher")
        self._fetcher.send(Decode(number, offset, length))

    def _feed_gpus(self) -> None:
        if self.gpus is None or self.paused or self._held_by_store():
            return
        for slot in sorted(self.gpus.slots, key=lambda s: len(s.pages)):
            while slot.room > 0:
                suspect = self._next_suspect()
                if suspect is not None:
                    if not slot.pages:
                        self._hand_over(slot, suspect, alone=True)
                    break
                number = self.ledger.first(State.READY)
                if number is None:
                    break
                self._hand_over(slot, number, alone=False)

    def _next_suspect(self) -> int | None:
        """The next page to be tried alone; suspects that have an outcome or are being fetched again are passed over."""
        while self.suspects and self.ledger[self.suspects[0]].state is not State.READY:
            self.suspects.popleft()
        return self.suspects[0] if self.suspects else None

    def _hand_over(self, slot: Slot, number: int, *, alone: bool) -> None:
        assert self.gpus is not None
        block = self.arena.block(number)
        assert block is not None
        if alone:
            self.suspects.remove(number)
        page = self.ledger.move(number, State.TRANSCRIBING, "alone" if alone else "handed over", self._by(slot))
        self.arena.pass_on(number, page.holder, self._loop.clock.now())
        self.gpus.hand_over(slot, number, block.offset, page.width, page.height, alone=alone)

    def _held_by_store(self) -> bool:
        held = self.backlog_bytes >= self._config.upload_backlog_bytes
        if held and not self._backlog_said:
            self._backlog_said = True
            size = self._config.upload_backlog_bytes
            self._say(f"WARNING the store is slow: {size} bytes wait for upload, no page goes to the GPU until some are stored")
        return held

    @property
    def backlog_bytes(self) -> int:
        return sum(page.exported_bytes for page in self.ledger.each(State.EXPORTED, State.UPLOADING))

    def _account(self) -> None:
        if self.gpus is None:
            return
        now, slots = self._loop.clock.now(), self.gpus.slots
        if not self.stalls.running and not any(slot.pages for slot in slots):
            return
        left = self.ledger.count(State.WAITING, State.FETCHING, State.FETCHED, State.DECODING, State.READY)
        ready = self.ledger.count(State.READY)
        cause = Idle.PAUSED if self.paused else Idle.NO_PAGE if not ready else Idle.STORE
        if not left:
            cause = Idle.ENDING
        idle = {s.name: cause for s in slots if s.phase is Phase.READY and not s.pages}
        self.stalls.update(now, sum(s.phase is not Phase.RETIRED for s in slots), idle)

    # ------------------------------------------------------------------------------------------- from the fetcher

    def on_fetcher(self, message: object) -> None:
        match message:
            case FetchStarted(page=number):
                self._in(number, State.FETCHING)
            case Fetched():
                self._fetched(message)
            case FetchFailed():
                self._fetch_failed(message)
            case CacheStored():
                self.counters.cache_stored += 1
            case DecodeStarted(page=number):
                if (page := self._in(number, State.DECODING)) is not None:
                    page.holder = "decoder"
            case Decoded(page=number, seconds=seconds):
                self._decoding.discard(number)
                if (page := self._in(number, State.DECODING)) is not None:
                    page.decode_s = seconds
                    self._decode_alone.pop(number, None)
                    self.ledger.move(number, State.READY, "decoded", "fetcher")
                else:
                    self.arena.free(number)
            case DecodeFailed(page=number, reason=reason):
                self._decoding.discard(number)
                self._decode_alone.pop(number, None)
                if self._in(number, State.DECODING) is not None:
                    self.fail(number, reason)
                else:
                    self.arena.free(number)

    def _fetched(self, message: Fetched) -> None:
        self.counters.bytes_fetched += message.origin_bytes
        self.counters.cache_hits += message.cache == "hit"
        self.counters.cache_misses += message.cache == "miss"
        self._deferred_in_row = 0
        page = self._in(message.page, State.FETCHING)
        if page is None:
            self._fetcher.send(Forget((message.page,)))
            return
        page.width, page.height, page.held_bytes = message.width, message.height, message.size_bytes
        page.fetch_s = message.seconds
        self.ledger.move(page.number, State.FETCHED, f"{message.size_bytes} bytes", "fetcher")
        if not self.arena.fits(page.pixel_bytes):
            self._fetcher.send(Forget((page.number,)))
            self.fail(
                page.number,
                f"{page.width} x {page.height} pixels need {page.pixel_bytes} bytes decoded, more than the whole arena; "
                f"raise PIXEL_ARENA_BYTES ({self.arena.size_bytes}) or lower MAX_IMAGE_WIDTH",
            )

    def _fetch_failed(self, message: FetchFailed) -> None:
        self.counters.bytes_fetched += message.origin_bytes
        if self._in(message.page, State.FETCHING) is None:
            return
        if message.outcome == State.FAILED:
            self._deferred_in_row = 0
            self.fail(message.page, message.reason)
            return
        self.defer(message.page, message.reason)
        self._deferred_in_row += 1
        left = self.ledger.count(State.WAITING, State.FETCHING)
        enough = 3 * self._config.download_concurrency
        if self._deferred_in_row >= enough or (self._deferred_in_row >= ORIGIN_LEAST and not left):
            self._origin_is_down(message.reason)

    def _origin_is_down(self, reason: str) -> None:
        """Nothing more is asked of the origin; what is fetched already still goes through."""
        self.origin_down = True
        waiting = self.ledger.numbers(State.WAITING, State.FETCHING)
        self._say(f"WARNING the image server is down: {self._deferred_in_row} pages in a row could not be fetched")
        self._fetcher.send(Forget(tuple(self.ledger.numbers(State.FETCHING)[:500])))
        for number in waiting:
            self.defer(number, f"not asked for, since the image server is down: {reason}", quiet=True)

    def fetcher_died(self, alone_limit: int = DECODE_DEATHS_ALONE) -> bool:
        """The fetcher is gone: what it held is asked for again. Whether the death counts against its restarts (not if
        a decode killed it)."""
        suspects = [p.number for p in self.ledger.each(State.DECODING) if p.holder == "decoder"]
        single = len(self._decoding) == 1 and len(suspects) == 1
        for number in self.ledger.numbers(State.DECODING):
            self.arena.free(number)
        self._decoding.clear()
        for number in self.ledger.numbers(State.FETCHED):
            self.arena.free(number)
        lost = self.ledger.numbers(State.FETCHING, State.FETCHED, State.DECODING)
        for number in lost:
            self.ledger.move(number, State.WAITING, "the fetcher died", "")
        for number in suspects:
            deaths = self._decode_alone.get(number, 0) + (single and number in self._decode_alone)
            self._decode_alone[number] = deaths
            if deaths >= alone_limit:
                del self._decode_alone[number]
                self.fail(number, f"its image ended the decoder {alone_limit} times while only this page was decoded")
        if self.origin_down:
            for number in lost:
                if self.ledger[number].state is State.WAITING:
                    self.defer(number, "lost with the fetcher, and not asked for again since the image server is down", quiet=True)
        if lost:
            self._loop.events.note("requeue", f"{len(lost)} pages are asked for again after the fetcher's death")
        return not suspects

    # ----------------------------------------------------------------------------------------------- from the gpus

    def on_gpu(self, slot: Slot, message: object) -> None:
        assert self.gpus is not None
        match message:
            case PageStarted(page=number):
                if (page := self._in(number, State.TRANSCRIBING)) is not None:
                    page.since_at = self._loop.clock.now()
            case Exported():
                self.gpus.let_go(slot, message.page, came_out=True)
                self._exported(slot, message)
            case PageFailed(page=number, out_of_memory=True, reason=reason):
                self.gpus.out_of_memory(slot, number, reason)
            case PageFailed(page=number, reason=reason, workdir_full=full):
                self.gpus.let_go(slot, number, came_out=False)
                if self._in(number, State.TRANSCRIBING) is None:
                    return
                if full:
                    self.defer(number, reason)
                    raise Transient("stream", f"the workdir is full: {reason}", Cause.WORKDIR_FULL)
                self.fail(number, reason)

    def _exported(self, slot: Slot, message: Exported) -> None:
        page = self._in(message.page, State.TRANSCRIBING)
        if page is None:
            return
        self.arena.free(page.number)
        page.transcribe_s, page.lines, page.exported_bytes = message.seconds, message.lines, message.size_bytes
        page.directory = self.gpus.directory(slot) if self.gpus else ""
        self.ledger.move(page.number, State.EXPORTED, f"{message.lines} lines", self._by(slot))
        self._upload(page)

    def run_alone(self, numbers: Iterable[int], why: str) -> None:
        for number in numbers:
            if self._requeue(number, f"{why}"):
                self.suspects.append(number)

    def run_again(self, numbers: Iterable[int], why: str) -> None:
        for number in reversed(list(numbers)):
            if self._requeue(number, why):
                self.ledger.to_front(number)

    def _requeue(self, number: int, why: str) -> bool:
        if self.ledger[number].state is not State.TRANSCRIBING:
            return False
        self._loop.events.note("requeue", f"page {page_name(number)} is run again: {why}", task=page_name(number))
        self.ledger.move(number, State.READY, why)
        self.arena.pass_on(number, "", self._loop.clock.now())
        return True

    # -------------------------------------------------------------------------------------------- from the uploader

    def on_uploader(self, message: object) -> None:
        match message:
            case UploadStarted(page=number):
                if self.ledger[number].state is State.EXPORTED:
                    self.ledger.move(number, State.UPLOADING, "", "uploader")
            case Uploaded(page=number, lines=lines, seconds=seconds):
                if (page := self._in(number, State.UPLOADING, State.EXPORTED)) is None:
                    return
                if page.state is State.EXPORTED:
                    self.ledger.move(number, State.UPLOADING, "", "uploader")
                page.upload_s, page.lines, page.exported_bytes = seconds, lines, 0
                self._store_failures = 0
                self.ledger.move(number, State.OK, f"{lines} lines", "uploader")
                self.last_page = number
                total_s = page.transcribe_s or 0.0
                self._say(f"page {page.name} ok: {lines} lines, {total_s:.1f} s")
            case UploadFailed():
                self._upload_failed(message)

    def _upload_failed(self, message: UploadFailed) -> None:
        page = self._in(message.page, State.UPLOADING, State.EXPORTED)
        if page is None:
            return
        page.exported_bytes = 0
        if message.outcome == State.FAILED:
            if message.text_lost:
                self.text_lost.add(page.number)
            self.fail(page.number, message.reason)
            return
        self.defer(page.number, message.reason)
        self._store_failures += message.store
        if self._store_failures >= STORE_FAILURES:
            text = f"{STORE_FAILURES} pages in a row could not be stored, the last because: {message.reason}"
            raise Transient("stream", text, Cause.STORE_DOWN)

    def uploader_died(self) -> None:
        """The uploader is gone; a page is stored again if it was not said to be stored."""
        for number in self.ledger.numbers(State.UPLOADING):
            self.ledger.move(number, State.EXPORTED, "the uploader died")

    def uploads_again(self) -> None:
        for page in self.ledger.each(State.EXPORTED):
            self._upload(page)

    def _upload(self, page: Page) -> None:
        self._uploader.send(Upload(page.number, page.directory, page.width, page.height))

    # --------------------------------------------------------------------------------------------------- outcomes

    def fail(self, number: int, reason: str) -> None:
        """A page's outcome is `failed`, for good."""
        self._outcome(number, State.FAILED, reason)

    def defer(self, number: int, reason: str, *, quiet: bool = False) -> None:
        """A page cannot be had now; another attempt of the volume may get it."""
        self._outcome(number, State.DEFERRED, reason, quiet=quiet)

    def _outcome(self, number: int, state: State, reason: str, *, quiet: bool = False) -> None:
        page = self.ledger.move(number, state, reason)
        if number not in self._decoding:
            self.arena.free(number)
        self.last_page = number
        self.last_error = (number, reason)
        if not quiet:
            self._say(f"page {page.name} {state}: {reason}")

    def defer_blamed(self, numbers: Iterable[int], why: str) -> None:
        """The device was to blame for what these pages were failed for."""
        for number in numbers:
            if self.ledger[number].state is State.FAILED:
                self.defer(number, why)

    def _in(self, number: int, *states: State) -> Page | None:
        """The page, if it is where a message expects it; else the message is late and is dropped."""
        page = self.ledger.pages.get(number)
        if page is not None and page.state in states:
            return page
        self.counters.late_messages += 1
        return None

    def _by(self, slot: Slot) -> str:
        return f"{slot.name}#{slot.child.number if slot.child else 0}"

    def commanded(self, number: int, action: str, who: str) -> str:
        """`retry` or `fail` one page that is not finished, for the debug CLI; the answer in one sentence.

        Raises:
            ValueError: the page is finished, or is being stored.
        """
        page = self.ledger.pages.get(number)
        if page is None:
            raise ValueError(f"there is no page {page_name(number)}; the volume has {len(self.ledger)}")
        if page.state in (State.OK, State.FAILED, State.SKIPPED):
            raise ValueError(f"page {page.name} is finished ({page.state})")
        if page.state in (State.EXPORTED, State.UPLOADING):
            raise ValueError(f"page {page.name} is being stored and will be finished in a moment")
        was = page.state
        slot = next((s for s in self.gpus.slots if number in s.pages), None) if self.gpus else None
        if action == "retry":
            if was is State.TRANSCRIBING and slot is not None and self.gpus is not None:
                self.gpus.recycle(slot, f"{who} asks for page {page.name} again", now=True)
            elif was is not State.WAITING:
                self._withdraw(number)
                self.ledger.move(number, State.WAITING, f"asked for again by {who}")
            return f"page {page.name} was {was} and is put back"
        if was is State.TRANSCRIBING and slot is not None and self.gpus is not None:
            slot.pages.pop(number)
            self.gpus.recycle(slot, f"{who} gives page {page.name} up", now=True)
        self._withdraw(number)
        self.fail(number, f"given up by {who}")
        return f"page {page.name} was {was} and is given up"

    def _withdraw(self, number: int) -> None:
        if self.ledger[number].state is not State.DECODING:
            self.arena.free(number)
        self._fetcher.send(Forget((number,)))
