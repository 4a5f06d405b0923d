"""One gpu actor over all its incarnations: what it is doing, which pages it has, what is held against it.

Plain state. Owns the phases; who moves a slot from one to the next is pool.py's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from batchpod.gpus.blame import Decision, Docket, InFlight
from supervisor.clock import Clock
from supervisor.process import Incarnation


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
    """`pages` are those on loan to the process, each with the instant it was handed over; `exclusive` while one is tried
    alone. `decision` and `hang` are set when the process is ended for a hang, `expected_end` when it is ended for
    another reason; `restart` is the record of a restart that is under way."""

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

    @property
    def holder(self) -> str:
        """Name and incarnation, as a page's story tells who had it."""
        return f"{self.name}#{self.child.number if self.child else 0}"

    def in_flight(self, clock: Clock) -> list[InFlight]:
        """The pages with their last marks; one that has left no mark yet waits since it was handed over."""
        if self.child is None:
            return []
        marks = {m.task: m for m in self.child.marks.tasks()}
        seen = []
        for page, handed_at in self.pages.items():
            mark = marks.get(page)
            if mark is None:
                seen.append(InFlight(page, clock.age(handed_at), False))
            else:
                age_s = clock.age(max(mark.at, handed_at))
                seen.append(InFlight(page, age_s, mark.inside, mark.step, mark.detail, mark.thread))
        return seen

    def let_go(self, page: int, *, came_out: bool) -> None:
        """A page has left the process, exported or failed by an exception of its own."""
        self.pages.pop(page, None)
        self.warned.discard(page)
        self.exclusive = self.exclusive and bool(self.pages)
        if came_out:
            self.docket.came_out()
            self.done += 1
        else:
            self.failed += 1

    def take_back(self) -> list[int]:
        """The process is gone: the pages that were in it, in the order in which they were handed over."""
        pages = list(self.pages)
        self.pages.clear()
        self.warned.clear()
        self.exclusive = False
        return pages

    def forget_end(self) -> None:
        """What was held ready for the end of one process does not concern the next."""
        self.decision, self.hang, self.expected_end, self.device_error = None, "", "", False


def where(page: InFlight) -> str:
    """`TextRecognition (trocr-base 3/9)`, or that it has not begun."""
    if not page.step:
        return "the gpu process, which has not begun it"
    waiting = "" if page.inside else ", waiting"
    return f"{page.step} ({page.detail}{waiting})" if page.detail else f"{page.step}{waiting}"
