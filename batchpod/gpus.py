"""The gpu actors and the standby: their starts, their loads, their hangs and deaths, and who takes over.

Owns every gpu process of the run; which pages they get is stream.py's, who pays for a death is blame.py's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from actors.messages import Dying, Imported, Load, Loaded, LoadFailed, Stop, Transcribe, page_name
from batchpod import blame
from batchpod.blame import Decision, Docket, InFlight
from batchpod.crew import Crew
from batchpod.errors import Cause, Permanent, Transient
from supervisor.loop import Loop
from supervisor.process import Exit, Incarnation, thread_stack
from supervisor.restart import BackOff

STARTS = 3
STOP_S = 5.0


class Phase(StrEnum):
    IMPORTING = "importing"
    IMPORTED = "imported"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    ENDING = "ending"
    RETIRED = "retired"


@dataclass(slots=True)
class Slot:
    """One gpu actor over all its incarnations."""

    name: str
    device: str | None
    child: Incarnation | None = None
    phase: Phase = Phase.IMPORTING
    phase_at: float = 0.0
    capacity: int = 1
    exclusive: bool = False
    pages: dict[int, float] = field(default_factory=dict)
    docket: Docket = field(default_factory=Docket)
    decision: Decision | None = None
    hang: str = ""
    expected_end: str = ""
    failed_starts: int = 0
    last_failure: str = ""
    device_error: bool = False
    loaded_before: bool = False
    restarts: int = 0
    last_exit: str = ""
    done: int = 0
    failed: int = 0
    down_since: float = 0.0
    restart: dict[str, Any] | None = None
    warned: set[int] = field(default_factory=set)

    @property
    def room(self) -> int:
        """Pages that may be handed over now."""
        if self.phase is not Phase.READY or self.exclusive:
            return 0
        return self.capacity - len(self.pages)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the stream is told of the pages: `(page, reason)` failed, to be run alone, to be run again, deferred."""

    failed: Callable[[int, str], None]
    alone: Callable[[Iterable[int], str], None]
    again: Callable[[Iterable[int], str], None]
    deferred: Callable[[Iterable[int], str], None]


class Gpus:
    """All gpu slots and the standby. `wanted` (models are to be loaded) is set by the run once there is work."""

    def __init__(self, loop: Loop, crew: Crew, devices: list[str | None], verdicts: Verdicts) -> None:
        self._loop, self._crew, self._config, self._verdicts = loop, crew, crew.config, verdicts
        self.slots = [Slot(f"gpu-{n}", device) for n, device in enumerate(devices)]
        for slot in self.slots[1:]:
            slot.docket.share(self.slots[0].docket)
        self.standby: Incarnation | None = None
        self.standby_ready = False
        self.standby_allowed = self._config.gpu_standby
        self._standby_backoff = BackOff()
        self._standby_at = 0.0
        self.wanted = False
        self.closing = False
        self.first_page_out = False
        self.versions: Imported | None = None
        self.restarts: list[dict[str, Any]] = []

    # ------------------------------------------------------------------------------------------------------- starts

    def start(self) -> None:
        """Start every gpu process: its imports run while the source is read and the store listed."""
        for slot in self.slots:
            self._spawn(slot, "the run begins")

    def load(self) -> None:
        """There is work: load the models as soon as the imports are done."""
        self.wanted = True
        for slot in self.slots:
            if slot.phase is Phase.IMPORTED:
                self._send_load(slot)

    def _spawn(self, slot: Slot, why: str) -> None:
        if self.standby is not None:
            slot.child, self.standby = self.standby, None
            self._loop.rename(slot.child, slot.name)
            self._enter(slot, Phase.IMPORTED if self.standby_ready else Phase.IMPORTING)
            self._note("promote", f"the standby (pid {slot.child.pid}) takes over ({why})", slot)
            self.standby_ready = False
        else:
            slot.child = self._loop.spawn(self._crew.gpu(slot.name), why)
            self._enter(slot, Phase.IMPORTING)
        if self.wanted and slot.phase is Phase.IMPORTED:
            self._send_load(slot)

    def _send_load(self, slot: Slot) -> None:
        assert slot.child is not None
        directory = self.directory(slot)
        os.makedirs(directory, exist_ok=True)
        smoke = not slot.loaded_before or slot.docket.judge
        slot.child.outgoing.put(Load(slot.device, directory, smoke))
        self._enter(slot, Phase.LOADING)

    def directory(self, slot: Slot) -> str:
        """Where the slot's present incarnation writes its files."""
        assert slot.child is not None
        return self._crew.workdir.path(f"{slot.name}.{slot.child.number}")

    def _enter(self, slot: Slot, phase: Phase) -> None:
        slot.phase, slot.phase_at = phase, self._loop.clock.now()

    def _note(self, kind: str, text: str, slot: Slot, page: int | None = None) -> None:
        number = slot.child.number if slot.child else 0
        task = page_name(page) if page else ""
        self._loop.events.note(kind, text, actor=slot.name, incarnation=number, task=task)

    # ----------------------------------------------------------------------------------------------------- messages

    def slot_of(self, child: Incarnation) -> Slot | None:
        return next((s for s in self.slots if s.child is child), None)

    def imported(self, child: Incarnation, message: Imported) -> None:
        self.versions = self.versions or message
        if child is self.standby:
            self.standby_ready = True
            self._standby_backoff.succeeded()
            return
        slot = self.slot_of(child)
        if slot is not None and slot.phase is Phase.IMPORTING:
            self._enter(slot, Phase.IMPORTED)
            if self.wanted:
                self._send_load(slot)

    def loaded(self, slot: Slot, message: Loaded) -> None:
        if slot.docket.judge:
            self._note("blame", "the smoke test passed: the pages were guilty, counting starts anew", slot)
            slot.docket.acquitted()
        slot.capacity, slot.failed_starts, slot.loaded_before = message.capacity, 0, True
        self._enter(slot, Phase.READY)
        if slot.restart is not None:
            slot.restart["seconds"] = round(self._loop.clock.now() - slot.down_since, 3)
            slot.restart = None

    def load_failed(self, slot: Slot, message: LoadFailed) -> None:
        """The models cannot be loaded, or cannot run.

        Raises:
            Permanent, Transient: the run cannot go on.
        """
        slot.last_failure = message.error
        if message.permanent and not any(s.loaded_before for s in self.slots):
            raise Permanent("load", message.error)
        if message.smoke and slot.docket.judge:
            self._broken(slot, message.error)
        elif message.smoke or (len(self._active()) == 1 and not slot.loaded_before):
            self._retire(slot, message.error, Cause.GPU_BROKEN if message.smoke else Cause.UNKNOWN)
        if slot.child is not None:
            slot.device_error = slot.device_error or message.smoke
            self._loop.kill(slot.child, f"its load failed: {message.error}")

    def dying(self, slot: Slot, message: Dying) -> None:
        slot.last_failure = message.reason
        slot.device_error = message.device_error

    def _active(self) -> list[Slot]:
        return [s for s in self.slots if s.phase is not Phase.RETIRED]

    def _broken(self, slot: Slot, error: str) -> None:
        pages = list(slot.docket.blamed)
        self._verdicts.deferred(pages, f"the GPU or the model is broken, the page is not to blame: {error}")
        self._retire(slot, f"the smoke test failed after {len(pages)} pages in a row: {error}", Cause.GPU_BROKEN)

    def _retire(self, slot: Slot, error: str, cause: Cause) -> None:
        """Give one gpu actor up; the last one ends the run."""
        self._enter(slot, Phase.RETIRED)
        self._note("retire", f"is given up, the run goes on without it: {error}", slot)
        if not self._active():
            raise Transient("stream" if slot.loaded_before else "load", error, cause)

    # -------------------------------------------------------------------------------------------------------- pages

    def hand_over(self, slot: Slot, page: int, offset: int, width: int, height: int, *, alone: bool) -> None:
        """Give a page to a slot that has room for it; `alone` keeps every other page out until it is done."""
        assert slot.child is not None
        slot.pages[page] = self._loop.clock.now()
        slot.exclusive = alone
        slot.child.outgoing.put(Transcribe(page, offset, width, height))

    def let_go(self, slot: Slot, page: int, *, came_out: bool) -> None:
        """A page has left the process, exported or failed by an exception of its own."""
        slot.pages.pop(page, None)
        slot.warned.discard(page)
        slot.exclusive = slot.exclusive and bool(slot.pages)
        if came_out:
            slot.docket.came_out()
            slot.done += 1
            self.first_page_out = True
        else:
            slot.failed += 1

    def in_flight(self, slot: Slot) -> list[InFlight]:
        """The slot's pages with their last marks; one that has left no mark yet waits since it was handed over."""
        if slot.child is None:
            return []
        clock = self._loop.clock
        marks = {m.task: m for m in slot.child.marks.tasks()}
        seen = []
        for page, handed_at in slot.pages.items():
            mark = marks.get(page)
            if mark is None:
                seen.append(InFlight(page, clock.age(handed_at), False))
            else:
                age_s = clock.age(max(mark.at, handed_at))
                seen.append(InFlight(page, age_s, mark.inside, mark.step, mark.detail, mark.thread))
        return seen

    # ------------------------------------------------------------------------------------------------------- watching

    def watch(self) -> None:
        """Look at every gpu process once a second: deadlines, hangs, drained slots, the standby."""
        limits = {Phase.IMPORTING: self._config.gpu_start_s, Phase.LOADING: self._config.gpu_load_s}
        for slot in self.slots:
            limit_s = limits.get(slot.phase)
            if limit_s is not None and self._loop.clock.age(slot.phase_at) >= limit_s and slot.child is not None:
                slot.last_failure = f"{slot.phase} took longer than {limit_s:g} s"
                self._loop.dump_and_kill(slot.child, slot.last_failure)
                self._enter(slot, Phase.ENDING)
            elif slot.phase in (Phase.READY, Phase.DRAINING):
                self._watch_pages(slot)
            if slot.phase is Phase.DRAINING and not slot.pages:
                self._recycle_now(slot)
        self._watch_standby()

    def _watch_pages(self, slot: Slot) -> None:
        pages = self.in_flight(slot)
        timeout_s = self._config.page_timeout_s
        for p in pages:
            if p.age_s >= timeout_s / 2 and p.page not in slot.warned:
                slot.warned.add(p.page)
                text = f"page {page_name(p.page)} shows no progress for {p.age_s:.0f} s in {where(p)}"
                self._note("beat-late", text, slot, p.page)
            elif p.age_s < timeout_s / 2:
                slot.warned.discard(p.page)
        if slot.child is None or not blame.stalled(pages, timeout_s):
            return
        slot.decision = blame.after_hang(pages, timeout_s)
        stuck = next((p for p in pages if p.page == slot.decision.guilty), max(pages, key=lambda p: p.age_s))
        slot.hang = f"made no progress for {timeout_s:g} s in {where(stuck)}"
        self._goes_down(slot, page_name(stuck.page), slot.hang)
        self._loop.dump_and_kill(slot.child, f"page {page_name(stuck.page)} {slot.hang}")
        self._enter(slot, Phase.ENDING)

    def _watch_standby(self) -> None:
        if self.standby is not None:
            if not self.standby_ready and self.standby.uptime_s >= self._config.gpu_start_s:
                self._loop.kill(self.standby, f"its imports took longer than {self._config.gpu_start_s:g} s")
            return
        steady = all(s.phase in (Phase.READY, Phase.RETIRED, Phase.DRAINING) for s in self.slots)
        if not (self.standby_allowed and self.first_page_out and steady) or self.closing:
            return
        if self._loop.clock.now() >= self._standby_at:
            self.standby_ready = False
            self.standby = self._loop.spawn(self._crew.gpu("standby"), "a spare with its imports done")

    def drop_standby(self, why: str) -> bool:
        """Do without a standby from now on; whether there was one."""
        self.standby_allowed = False
        if self.standby is None:
            return False
        self._loop.kill(self.standby, why)
        return True

    def recycle(self, slot: Slot, why: str, *, now: bool = False) -> None:
        """Restart a gpu process: once the pages in hand are done, or at once (they are run again, uncharged)."""
        if slot.child is None or slot.phase in (Phase.RETIRED, Phase.ENDING):
            return
        slot.expected_end = why
        if now or slot.phase not in (Phase.READY, Phase.DRAINING):
            self._goes_down(slot, None, why)
            self._loop.dump_and_kill(slot.child, why)
            self._enter(slot, Phase.ENDING)
        else:
            self._enter(slot, Phase.DRAINING)

    def _goes_down(self, slot: Slot, page: str | None, cause: str) -> None:
        """Record a restart from the moment it is decided; its seconds are those until the models are loaded again."""
        slot.down_since = self._loop.clock.now()
        slot.restart = {"page": page, "cause": cause, "seconds": 0.0}
        self.restarts.append(slot.restart)
        slot.restarts += 1

    def _recycle_now(self, slot: Slot) -> None:
        assert slot.child is not None
        self._goes_down(slot, None, slot.expected_end)
        self._loop.stop(slot.child, Stop(STOP_S), STOP_S, slot.expected_end)
        self._enter(slot, Phase.ENDING)

    # -------------------------------------------------------------------------------------------------------- ends

    def ended(self, child: Incarnation, exit_: Exit) -> bool:
        """A gpu process is gone: decide about its pages and start its successor; false if it was none of ours.

        Raises:
            Transient: no gpu actor is left.
        """
        if child is self.standby:
            self.standby = None
            if self.standby_allowed and not self.closing:
                self._standby_at = self._loop.clock.now() + self._standby_backoff.failed()
                if self._standby_backoff.give_up:
                    self.standby_allowed = False
                    self._loop.output.say(f"WARNING the standby keeps dying ({exit_.text}); going on without one")
            return True
        slot = self.slot_of(child)
        if slot is None:
            return False
        slot.last_exit = exit_.text + (f" ({exit_.asked})" if exit_.asked else "")
        directory, phase = self.directory(slot), slot.phase
        slot.child = None
        if self.closing or phase is Phase.RETIRED:
            return True
        pages = dict(slot.pages)
        slot.pages.clear()
        slot.warned.clear()
        slot.exclusive = False
        _discard(directory, pages)
        if slot.decision or slot.expected_end or phase in (Phase.READY, Phase.DRAINING):
            self._settle(slot, exit_, pages)
        else:
            self._failed_start(slot, exit_)
        if slot.device_error:
            slot.docket.device_error()
        slot.decision, slot.hang, slot.expected_end, slot.device_error = None, "", "", False
        if slot.phase is not Phase.RETIRED:
            self._spawn(slot, f"the one before: {exit_.text}")
        return True

    def _failed_start(self, slot: Slot, exit_: Exit) -> None:
        slot.failed_starts += 1
        cause = slot.last_failure or f"it {exit_.text}"
        if slot.failed_starts >= STARTS:
            text = f"{slot.name} could not be brought up in {STARTS} starts in a row: {cause}"
            self._retire(slot, text, Cause.GPU_START)

    def _settle(self, slot: Slot, exit_: Exit, pages: Mapping[int, float]) -> None:
        """Decide about the pages that were in a process that had been working."""
        if slot.decision is not None:
            stack = _stack_of(exit_, slot.decision.guilty)
            reason = slot.hang + (f"; it stood in {stack}" if stack else "")
            self._apply(slot, slot.decision, pages, reason)
        elif slot.expected_end:
            self._verdicts.again(pages, slot.expected_end)
        else:
            decision = slot.docket.after_death(list(pages))
            how = slot.last_failure or exit_.text
            self._goes_down(slot, page_name(next(iter(pages))) if len(pages) == 1 else None, how)
            self._apply(slot, decision, pages, self._death(how, exit_, decision.guilty))
        slot.last_failure = ""

    def _death(self, how: str, exit_: Exit, guilty: int | None) -> str:
        mark = next((m for m in exit_.tasks if m.task == guilty), None)
        last = f", last in {mark.step} ({mark.detail})" if mark else ""
        if how != exit_.text:
            return f"the gpu process ended twice while only this page was in it: {how}{last}"
        verb = "was " if how.startswith("killed") else ""
        return f"the gpu process {verb}{how} twice while only this page was in it{last}"

    def _apply(self, slot: Slot, decision: Decision, pages: Mapping[int, float], reason: str) -> None:
        if decision.guilty in pages and decision.guilty is not None:
            slot.docket.blame(decision.guilty)
            slot.failed += 1
            self._note("blame", f"page {page_name(decision.guilty)} is to blame: {reason}", slot, decision.guilty)
            self._verdicts.failed(decision.guilty, reason)
        alone = [p for p in decision.alone if p in pages]
        if alone:
            self._verdicts.alone(alone, "its gpu process ended while it was in flight; tried again alone")
        left = [p for p in pages if p != decision.guilty and p not in alone]
        if left:
            self._verdicts.again(left, "its gpu process ended over another page")

    def out_of_memory(self, slot: Slot, page: int, reason: str) -> None:
        """The device had not enough memory for this page: once more alone in a fresh process, then it fails."""
        decision = slot.docket.after_out_of_memory(page)
        self.let_go(slot, page, came_out=False)
        if decision.guilty is not None:
            self._verdicts.failed(page, reason)
            return
        self._verdicts.alone([page], f"{reason}; tried again alone in a fresh process")
        self.recycle(slot, f"out of memory on page {page_name(page)}")

    def close(self, why: str, *, gently: bool) -> None:
        """Stop every gpu process: asked first (`gently`, 5 s), or killed at once."""
        self.closing = True
        children = [s.child for s in self.slots if s.child is not None]
        for child in [*children, *([self.standby] if self.standby else [])]:
            if gently:
                self._loop.stop(child, Stop(STOP_S), STOP_S, why)
            else:
                self._loop.kill(child, why)


def where(page: InFlight) -> str:
    """`TextRecognition (trocr-base 3/9)`, or that it has not begun."""
    if not page.step:
        return "the gpu process, which has not begun it"
    waiting = "" if page.inside else ", waiting"
    return f"{page.step} ({page.detail}{waiting})" if page.detail else f"{page.step}{waiting}"


def _stack_of(exit_: Exit, page: int | None) -> str:
    mark = next((m for m in exit_.tasks if m.task == page), None)
    return thread_stack(exit_.stacks, mark.thread) if mark else ""


def _discard(directory: str, pages: Iterable[int]) -> None:
    """Remove what a dead process left of pages it had not finished."""
    for page in pages:
        for path in Path(directory).glob(f"{page_name(page)}.*"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
