"""Pages on their way in: fetched ahead, decoded into the arena, and asked for again when the fetcher dies.

Owns the bounds of that (lookahead, arena), the verdict that the origin is down, and who pays for a dead decoder. What
goes to the GPU is feed.py's.
"""

from __future__ import annotations

from actors.messages import (
    CacheStored,
    Decode,
    Decoded,
    DecodeFailed,
    DecodeStarted,
    Fetch,
    Fetched,
    FetchFailed,
    FetchStarted,
    Forget,
    page_name,
)
from batchpod.flow.ledger import State
from batchpod.flow.register import Register
from batchpod.services import Service
from batchpod.settings.config import Config
from supervisor.arena import Arena
from supervisor.loop import Loop

DECODE_S = 120.0
"""A decode that takes longer hangs."""
DECODE_DEATHS_ALONE = 2
ORIGIN_LEAST = 10


class Intake:
    def __init__(self, config: Config, loop: Loop, fetcher: Service, register: Register) -> None:
        self._config, self._loop, self._fetcher, self._register = config, loop, fetcher, register
        self.arena = Arena(config.pixel_arena_bytes)
        self.lookahead_pages = config.lookahead_pages
        self.origin_down = False
        self._decoding: set[int] = set()
        self._decode_alone: dict[int, int] = {}
        self._deferred_in_row = 0

    # -------------------------------------------------------------------------------------------------------- orders

    def order(self) -> None:
        """Ask for what may be fetched and decoded now."""
        self._order_fetches()
        self._order_decodes()

    def _order_fetches(self) -> None:
        ledger = self._register.ledger
        ahead = ledger.count(State.FETCHING, State.FETCHED, State.DECODING, State.READY)
        room = self.lookahead_pages - ahead
        if room <= 0 or self.origin_down:
            return
        wanted = sorted(ledger.numbers(State.WAITING)[: room * 2 + 64])[:room]
        for number in wanted:
            ledger.move(number, State.FETCHING, "asked for", "fetcher")
        for start in range(0, len(wanted), 200):
            self._fetcher.send(Fetch(tuple(wanted[start : start + 200])))

    def _order_decodes(self) -> None:
        ledger, now = self._register.ledger, self._loop.clock.now()
        alone = [n for n in self._decode_alone if ledger[n].state is State.FETCHED]
        if any(n in self._decode_alone for n in self._decoding):
            return
        if ledger.count(State.FETCHED) > self.arena.waiting:
            for page in ledger.each(State.FETCHED):
                if self.arena.block(page.number) is None and not self.arena.wanted(page.number):
                    self.arena.request(page.number, page.pixel_bytes, now)
        if not alone:
            self._decode_granted(now)
        elif not self._decoding:  # A page that was being decoded when the fetcher died has no other beside it.
            self._decode_granted(now, only=alone[0])

    def _decode_granted(self, now: float, only: int | None = None) -> None:
        for number, block in self.arena.grants("fetcher", now, only):
            self._decoding.add(number)
            self._register.ledger.move(number, State.DECODING, "has its block", "fetcher")
            self._fetcher.send(Decode(number, block.offset, block.length))

    # ------------------------------------------------------------------------------------------------------- messages

    def hear(self, message: object) -> None:
        """Take what the fetcher says of pages."""
        match message:
            case FetchStarted(page=number):
                self._register.expected(number, State.FETCHING)
            case Fetched():
                self._fetched(message)
            case FetchFailed():
                self._fetch_failed(message)
            case CacheStored():
                self._register.counters.cache_stored += 1
            case DecodeStarted(page=number):
                if (page := self._register.expected(number, State.DECODING)) is not None:
                    page.holder = "decoder"
            case Decoded(page=number, seconds=seconds):
                if self._decode_ended(number):
                    self._register.ledger[number].decode_s = seconds
                    self._register.ledger.move(number, State.READY, "decoded", "fetcher")
            case DecodeFailed(page=number, reason=reason):
                if self._decode_ended(number):
                    self._register.fail(number, reason)

    def _fetched(self, message: Fetched) -> None:
        counters = self._register.counters
        counters.bytes_fetched += message.origin_bytes
        counters.cache_hits += message.cache == "hit"
        counters.cache_misses += message.cache == "miss"
        self._deferred_in_row = 0
        page = self._register.expected(message.page, State.FETCHING)
        if page is None:
            self._fetcher.send(Forget((message.page,)))
            return
        page.width, page.height, page.held_bytes = message.width, message.height, message.size_bytes
        page.fetch_s = message.seconds
        self._register.ledger.move(page.number, State.FETCHED, "its bytes are held", "fetcher")
        if not self.arena.fits(page.pixel_bytes):
            self._fetcher.send(Forget((page.number,)))
            self._register.fail(
                page.number,
                f"{page.width} x {page.height} pixels need {page.pixel_bytes} bytes decoded, more than the whole arena; "
                f"raise PIXEL_ARENA_BYTES ({self.arena.size_bytes}) or lower MAX_IMAGE_WIDTH",
            )

    def _fetch_failed(self, message: FetchFailed) -> None:
        self._register.counters.bytes_fetched += message.origin_bytes
        if self._register.expected(message.page, State.FETCHING) is None:
            return
        if message.outcome == State.FAILED:
            self._deferred_in_row = 0
            self._register.fail(message.page, message.reason)
            return
        self._register.defer(message.page, message.reason)
        self._deferred_in_row += 1
        left = self._register.ledger.count(State.WAITING, State.FETCHING)
        enough = 3 * self._config.download_concurrency
        if self._deferred_in_row >= enough or (self._deferred_in_row >= ORIGIN_LEAST and not left):
            self._origin_is_down(message.reason)

    def _origin_is_down(self, reason: str) -> None:
        """Nothing more is asked of the origin; what is fetched already still goes through."""
        self.origin_down = True
        ledger = self._register.ledger
        text = f"WARNING the image server is down: {self._deferred_in_row} pages in a row could not be fetched"
        self._register.say(text)
        self._fetcher.send(Forget(tuple(ledger.numbers(State.FETCHING)[:500])))
        for number in ledger.numbers(State.WAITING, State.FETCHING):
            why = f"not asked for, since the image server is down: {reason}"
            self._register.defer(number, why, quiet=True)

    def _decode_ended(self, number: int) -> bool:
        """The decoder has let go of a page; whether the page still waits for that (else its block is free)."""
        self._decoding.discard(number)
        if self._register.expected(number, State.DECODING) is None:
            self.arena.free(number)
            return False
        self._decode_alone.pop(number, None)
        return True

    # ------------------------------------------------------------------------------------------------- ends and takings

    def died(self) -> bool:
        """The fetcher is gone: what it held is asked for again. Whether the death counts against its restarts (not if
        a decode killed it)."""
        ledger = self._register.ledger
        suspects = [p.number for p in ledger.each(State.DECODING) if p.holder == "decoder"]
        single = len(self._decoding) == 1 and len(suspects) == 1
        for number in [*self._decoding, *ledger.numbers(State.FETCHED)]:
            self.arena.free(number)
        self._decoding.clear()
        lost = ledger.numbers(State.FETCHING, State.FETCHED, State.DECODING)
        for number in lost:
            ledger.move(number, State.WAITING, "the fetcher died", "")
        for number in suspects:
            self._suspect(number, single)
        if self.origin_down:
            why = "lost with the fetcher, and not asked for again since the image server is down"
            for number in lost:
                if ledger[number].state is State.WAITING:
                    self._register.defer(number, why, quiet=True)
        if lost:
            self._loop.events.note("requeue", f"{len(lost)} pages are asked for again after the fetcher's death")
        return not suspects

    def _suspect(self, number: int, single: bool) -> None:
        """A page was being decoded when the fetcher died: it is decoded alone, and pays the second time it dies so."""
        deaths = self._decode_alone.get(number, 0) + (single and number in self._decode_alone)
        self._decode_alone[number] = deaths
        name = page_name(number)
        if deaths < DECODE_DEATHS_ALONE:
            text = f"page {name} was being decoded, it is decoded again alone"
            self._loop.events.note("requeue", text, actor="fetcher", task=name)
            return
        del self._decode_alone[number]
        reason = f"its image ended the decoder {DECODE_DEATHS_ALONE} times while only this page was decoded"
        self._loop.events.note("blame", f"page {name} is to blame: {reason}", actor="fetcher", task=name)
        self._register.fail(number, reason)

    def settled(self, number: int) -> None:
        """A page has its outcome: its block is free, unless the decoder still writes to it."""
        if number not in self._decoding:
            self.arena.free(number)

    def withdraw(self, number: int) -> None:
        """Nothing of this page is wanted any more."""
        if self._register.ledger[number].state is not State.DECODING:
            self.arena.free(number)
        self._fetcher.send(Forget((number,)))
