"""Pages on the GPU: handed to the gpu actors, taken back from those that end, exported.

Owns which page goes where and when, and the account of idle time. Who is blamed is blame.py's, the processes are
pool.py's.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable

from actors.messages import Exported, PageFailed, PageStarted, page_name
from batchpod.errors import Cause, Transient
from batchpod.flow.accounts import Idle, StallClock
from batchpod.flow.ledger import Page, State
from batchpod.flow.outlet import Outlet
from batchpod.flow.register import Register
from batchpod.gpus.pool import Gpus
from batchpod.gpus.slots import Phase, Slot
from supervisor.arena import Arena
from supervisor.loop import Loop

_AHEAD = (State.WAITING, State.FETCHING, State.FETCHED, State.DECODING, State.READY)


class Feed:
    """`gpus` is set by the run, which makes it with this one's answers."""

    gpus: Gpus

    def __init__(self, loop: Loop, register: Register, arena: Arena, outlet: Outlet) -> None:
        self._loop, self._register, self._arena, self._outlet = loop, register, arena, outlet
        self.stalls = StallClock()
        self.paused = False
        self.open = False
        """Whether pages may be redone yet: what is stored of them has been cleared."""
        self._suspects: deque[int] = deque()

    # ----------------------------------------------------------------------------------------------------- handing out

    def hand_out(self) -> None:
        """Give every actor that has room its next page: first those that are tried alone, then in order of readiness."""
        if self.open and not self.paused and not self._outlet.full():
            for slot in sorted(self.gpus.slots, key=lambda s: len(s.pages)):
                self._fill(slot)
        self._account()

    def _fill(self, slot: Slot) -> None:
        while slot.room > 0:
            suspect = self._next_suspect()
            if suspect is not None:
                if not slot.pages:
                    self._suspects.popleft()
                    self._hand_over(slot, suspect, alone=True)
                return
            number = self._register.ledger.first(State.READY)
            if number is None:
                return
            self._hand_over(slot, number, alone=False)

    def _next_suspect(self) -> int | None:
        """The next page to be tried alone; suspects that have an outcome or are being fetched again are passed over."""
        while self._suspects and self._register.ledger[self._suspects[0]].state is not State.READY:
            self._suspects.popleft()
        return self._suspects[0] if self._suspects else None

    def _hand_over(self, slot: Slot, number: int, *, alone: bool) -> None:
        block = self._arena.block(number)
        assert block is not None
        why = "alone" if alone else "handed over"
        page = self._register.ledger.move(number, State.TRANSCRIBING, why, slot.holder)
        self._arena.pass_on(number, page.holder, self._loop.clock.now())
        self.gpus.hand_over(slot, number, block.offset, page.width, page.height, alone=alone)

    def _account(self) -> None:
        now, slots, ledger = self._loop.clock.now(), self.gpus.slots, self._register.ledger
        if not self.stalls.running and not any(slot.pages for slot in slots):
            return
        ready = ledger.count(State.READY)
        cause = Idle.PAUSED if self.paused else Idle.NO_PAGE if not ready else Idle.STORE
        if not ledger.count(*_AHEAD):
            cause = Idle.ENDING
        idle = {s.name: cause for s in slots if s.phase is Phase.READY and not s.pages}
        self.stalls.update(now, sum(s.phase is not Phase.RETIRED for s in slots), idle)

    # -------------------------------------------------------------------------------------------------------- messages

    def hear(self, slot: Slot, message: object) -> None:
        """Take what a gpu actor says of pages.

        Raises:
            Transient: the workdir is full.
        """
        match message:
            case PageStarted(page=number):
                if (page := self._register.expected(number, State.TRANSCRIBING)) is not None:
                    page.since_at = self._loop.clock.now()
            case Exported():
                self.gpus.let_go(slot, message.page, came_out=True)
                if (page := self._register.expected(message.page, State.TRANSCRIBING)) is not None:
                    self._exported(slot, page, message)
            case PageFailed(page=number, out_of_memory=True, reason=reason):
                self.gpus.out_of_memory(slot, number, reason)
            case PageFailed(page=number, reason=reason, workdir_full=full):
                self.gpus.let_go(slot, number, came_out=False)
                if self._register.expected(number, State.TRANSCRIBING) is None:
                    return
                if full:
                    self._register.defer(number, reason)
                    raise Transient("stream", f"the workdir is full: {reason}", Cause.WORKDIR_FULL)
                self._register.fail(number, reason)

    def _exported(self, slot: Slot, page: Page, message: Exported) -> None:
        self._arena.free(page.number)
        page.transcribe_s, page.lines, page.exported_bytes = message.seconds, message.lines, message.size_bytes
        page.directory = sys.intern(self.gpus.directory(slot))
        self._register.ledger.move(page.number, State.EXPORTED, f"{message.lines} lines", slot.holder)
        self._outlet.upload(page)

    # ---------------------------------------------------------------------------------------------- verdicts of pool.py

    def run_alone(self, numbers: Iterable[int], why: str) -> None:
        for number in numbers:
            if self._requeue(number, why):
                self._suspects.append(number)

    def run_again(self, numbers: Iterable[int], why: str) -> None:
        for number in reversed(list(numbers)):
            if self._requeue(number, why):
                self._register.ledger.to_front(number)

    def _requeue(self, number: int, why: str) -> bool:
        page = self._register.ledger[number]
        if page.state is not State.TRANSCRIBING:
            return False
        actor, _, incarnation = page.holder.partition("#")
        text = f"page {page_name(number)} is run again: {why}"
        self._loop.events.note("requeue", text, actor=actor, incarnation=int(incarnation or 0), task=page_name(number))
        self._register.ledger.move(number, State.READY, why)
        self._arena.pass_on(number, "", self._loop.clock.now())
        return True

    def clear_blamed(self, numbers: Iterable[int], why: str, others: bool) -> None:
        """The device was to blame for what these pages were failed for: they are fetched again if `others` can run
        them."""
        for number in numbers:
            if self._register.ledger[number].state is State.FAILED:
                self._register.defer(number, why)
                if others:
                    self._register.ledger.move(number, State.WAITING, "another gpu actor gets it")
