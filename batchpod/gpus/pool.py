"""The gpu actors: their starts, their loads, their hangs and deaths, and who takes over.

Owns every gpu process of the run; which pages they get is feed.py's, who pays for a death blame.py's.
"""

from __future__ import annotations

import os
from typing import Any

from actors.messages import Dying, Imported, Load, Loaded, LoadFailed, Stop, Transcribe, page_name
from batchpod.crew import Crew
from batchpod.errors import Cause, Permanent, Transient
from batchpod.gpus import aftermath, blame
from batchpod.gpus.aftermath import Verdicts
from batchpod.gpus.blame import InFlight
from batchpod.gpus.slots import Phase, Slot, where
from batchpod.gpus.standby import STANDBY, Standby
from supervisor.loop import Loop
from supervisor.process import Exit, Incarnation

STARTS = 3
STOP_S = 5.0


class Gpus:
    """All gpu slots and the standby. `wanted` (models are to be loaded) is set by the run once there is work."""

    def __init__(self, loop: Loop, crew: Crew, devices: list[str | None], verdicts: Verdicts) -> None:
        self._loop, self._crew, self._config, self._verdicts = loop, crew, crew.config, verdicts
        self.slots = [Slot(f"gpu-{n}", device) for n, device in enumerate(devices)]
        for slot in self.slots[1:]:
            slot.docket.share(self.slots[0].docket)
        self._spare = Standby(
            loop, lambda: crew.gpu(STANDBY), allowed=crew.config.gpu_standby, start_s=crew.config.gpu_start_s
        )
        self.wanted = False
        self.closing = False
        self.first_page_out = False
        self.versions: Imported | None = None
        self.restarts: list[dict[str, Any]] = []

    @property
    def standby(self) -> Incarnation | None:
        return self._spare.child

    @property
    def standby_ready(self) -> bool:
        return self._spare.ready

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
        spare = self._spare.take()
        if spare is not None:
            slot.child = spare
            self._loop.rename(spare, slot.name)
            self._enter(slot, Phase.IMPORTED if self._spare.ready else Phase.IMPORTING)
            self._note("promote", f"the standby (pid {spare.pid}) takes over ({why})", slot)
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
        if child is self._spare.child:
            self._spare.imported()
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
        slot.capacity, slot.failed_starts, slot.last_failure, slot.loaded_before = message.capacity, 0, "", True
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
        if message.workdir_full:
            raise Transient("load", message.error, Cause.WORKDIR_FULL)
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
        """The device or the model was to blame for what the last pages were failed for: another actor gets them."""
        pages = list(slot.docket.blamed)
        slot.docket.cleared(pages)
        others = len(self._active()) > 1
        self._verdicts.cleared(pages, f"the GPU or the model is broken, the page is not to blame: {error}", others)
        self._retire(slot, f"the smoke test failed after {len(pages)} pages in a row: {error}", Cause.GPU_BROKEN)

    def _retire(self, slot: Slot, error: str, cause: Cause) -> None:
        """Give one gpu actor up; the last one ends the run."""
        self._enter(slot, Phase.RETIRED)
        if not self._active():
            self._note("retire", f"is given up: {error}", slot)
            raise Transient("stream" if slot.loaded_before else "load", error, cause)
        self._note("retire", f"WARNING is given up, the run goes on without it: {error}", slot)

    # -------------------------------------------------------------------------------------------------------- pages

    def hand_over(self, slot: Slot, page: int, offset: int, width: int, height: int, *, alone: bool) -> None:
        """Give a page to a slot that has room for it; `alone` keeps every other page out until it is done."""
        assert slot.child is not None
        slot.pages[page] = self._loop.clock.now()
        slot.exclusive = alone
        slot.child.outgoing.put(Transcribe(page, offset, width, height))

    def let_go(self, slot: Slot, page: int, *, came_out: bool) -> None:
        """A page has left the process, exported or failed by an exception of its own."""
        slot.let_go(page, came_out=came_out)
        self.first_page_out = self.first_page_out or came_out

    def out_of_memory(self, slot: Slot, page: int, reason: str) -> None:
        """The device had not enough memory for this page: once more alone in a fresh process, then it fails."""
        decision = slot.docket.after_out_of_memory(page)
        self.let_go(slot, page, came_out=False)
        if decision.guilty is not None:
            self._verdicts.failed(page, reason)
            return
        self._verdicts.alone([page], f"{reason}; tried again alone in a fresh process")
        self.recycle(slot, f"out of memory on page {page_name(page)}")

    def in_flight(self, slot: Slot) -> list[InFlight]:
        return slot.in_flight(self._loop.clock)

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
        steady = all(s.phase in (Phase.READY, Phase.RETIRED, Phase.DRAINING) for s in self.slots)
        self._spare.tend(wanted=self.first_page_out and steady and not self.closing)

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

    # -------------------------------------------------------------------------------------------------------- ends

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

    def _recycle_now(self, slot: Slot) -> None:
        assert slot.child is not None
        self._goes_down(slot, None, slot.expected_end)
        self._loop.stop(slot.child, Stop(STOP_S), STOP_S, slot.expected_end)
        self._enter(slot, Phase.ENDING)

    def _goes_down(self, slot: Slot, page: str | None, cause: str) -> None:
        """Record a restart from the moment it is decided; its seconds are those until the models are loaded again."""
        slot.down_since = self._loop.clock.now()
        slot.restart = {"page": page, "cause": cause, "seconds": 0.0}
        self.restarts.append(slot.restart)
        slot.restarts += 1

    def ended(self, child: Incarnation, exit_: Exit) -> None:
        """A gpu process is gone: decide about its pages and start its successor.

        Raises:
            Transient: no gpu actor is left.
        """
        if child is self._spare.child:
            self._spare.ended(exit_, closing=self.closing)
            return
        slot = self.slot_of(child)
        if slot is None:
            return
        slot.last_exit = exit_.text + (f" ({exit_.asked})" if exit_.asked else "")
        directory, phase = self.directory(slot), slot.phase
        slot.child = None
        if self.closing or phase is Phase.RETIRED:
            return
        pages = slot.take_back()
        aftermath.discard(directory, pages)
        if slot.decision or slot.expected_end or phase in (Phase.READY, Phase.DRAINING):
            self._settle(slot, exit_, pages)
        else:
            self._failed_start(slot, exit_)
        if slot.device_error:
            slot.docket.device_error()
        slot.forget_end()
        if slot.phase is not Phase.RETIRED:
            self._spawn(slot, f"the one before: {exit_.text}")

    def _failed_start(self, slot: Slot, exit_: Exit) -> None:
        slot.failed_starts += 1
        if slot.failed_starts >= STARTS:
            cause = slot.last_failure or exit_.sentence
            text = f"{slot.name} could not be brought up in {STARTS} starts in a row: {cause}"
            self._retire(slot, text, Cause.GPU_START)

    def _settle(self, slot: Slot, exit_: Exit, pages: list[int]) -> None:
        """Decide about the pages that were in a process that had been working."""
        events = self._loop.events
        if slot.decision is not None:
            aftermath.after_hang(slot, exit_, slot.decision, pages, events, self._verdicts)
        elif slot.expected_end:
            self._verdicts.again(pages, slot.expected_end)
        else:
            self._goes_down(slot, page_name(pages[0]) if len(pages) == 1 else None, slot.last_failure or exit_.text)
            aftermath.after_death(slot, exit_, slot.docket.after_death(pages), pages, events, self._verdicts)
        slot.last_failure = ""

    def drop_standby(self, why: str) -> bool:
        """Do without a standby from now on; whether there was one."""
        return self._spare.drop(why)

    def close(self, why: str, *, gently: bool) -> None:
        """Stop every gpu process: asked first (`gently`, 5 s), or killed at once."""
        self.closing = True
        children = [s.child for s in self.slots if s.child is not None]
        for child in [*children, *([self.standby] if self.standby else [])]:
            if gently:
                self._loop.stop(child, Stop(STOP_S), STOP_S, why)
            else:
                self._loop.kill(child, why)
