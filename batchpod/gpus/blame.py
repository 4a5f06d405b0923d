"""Who pays when a gpu process hangs or dies: pure decisions about pages, from what was seen.

Owns the rules (a page alone is guilty, company is tried again alone, three blamed in a row call for the smoke test) and
the counts they need. Knows no process and no clock; pool.py acts on the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

JUDGE_AFTER = 3
DEATHS_ALONE = 2


@dataclass(frozen=True, slots=True)
class InFlight:
    """A page in a gpu process: `age_s` since its last progress, `inside` a model or step of its own, not waiting."""

    page: int
    age_s: float
    inside: bool
    step: str = ""
    detail: str = ""
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """`guilty` fails; `alone` are tried again one at a time; `again` are run again as if nothing had happened."""

    guilty: int | None = None
    alone: tuple[int, ...] = ()
    again: tuple[int, ...] = ()


def stalled(pages: Sequence[InFlight], timeout_s: float) -> bool:
    """Whether this process must be ended: a page inside something made no progress for `timeout_s`, or none moves.

    A page that only waits is not stalled while the page it waits for moves.
    """
    inside = [p for p in pages if p.inside]
    if inside:
        return any(p.age_s >= timeout_s for p in inside)
    return bool(pages) and all(p.age_s >= timeout_s for p in pages)


def after_hang(pages: Sequence[InFlight], timeout_s: float) -> Decision:
    """Who pays for a hang.

    Alone in its process: that page. In company that only waits, or that still moved in the second half of the time (so
    nothing stops them all, such as a held GIL): the page that stands still. Otherwise nobody yet.
    """
    if len(pages) == 1:
        return Decision(guilty=pages[0].page)
    suspects = [p for p in pages if p.inside and p.age_s >= timeout_s / 2]
    if len(suspects) == 1:
        guilty = suspects[0].page
        return Decision(guilty=guilty, again=tuple(p.page for p in pages if p.page != guilty))
    together = suspects or list(pages)
    rest = tuple(p.page for p in pages if p not in together)
    return Decision(alone=tuple(p.page for p in together), again=rest)


@dataclass(slots=True)
class Docket:
    """The counts behind the decisions for one gpu actor, over all its incarnations."""

    deaths_alone: dict[int, int] = field(default_factory=dict)
    out_of_memory: set[int] = field(default_factory=set)
    blamed: list[int] = field(default_factory=list)
    device_errors: int = 0

    def share(self, other: Docket) -> None:
        """Count each page's deaths together with `other`: a page may meet several actors."""
        self.deaths_alone, self.out_of_memory = other.deaths_alone, other.out_of_memory

    def after_death(self, pages: Sequence[int]) -> Decision:
        """Who pays when the process died with these pages in flight: one alone gets one more try alone, then fails;
        several are each tried again alone."""
        if len(pages) != 1:
            return Decision(alone=tuple(pages))
        page = pages[0]
        self.deaths_alone[page] = self.deaths_alone.get(page, 0) + 1
        if self.deaths_alone[page] >= DEATHS_ALONE:
            return Decision(guilty=page)
        return Decision(alone=(page,))

    def after_out_of_memory(self, page: int) -> Decision:
        """A page for which the device's memory did not suffice: once more, alone in a fresh process, then it fails."""
        if page in self.out_of_memory:
            return Decision(guilty=page)
        self.out_of_memory.add(page)
        return Decision(alone=(page,))

    def blame(self, page: int) -> None:
        """A page was failed for what happened to its process."""
        self.blamed.append(page)

    def device_error(self) -> None:
        """An incarnation ended over an error of its device (other than out of memory)."""
        self.device_errors += 1

    def came_out(self) -> None:
        """A page came out: the process and its device work."""
        self.blamed.clear()
        self.device_errors = 0

    def cleared(self, pages: Iterable[int]) -> None:
        """The device was to blame and not these pages: nothing is held against them."""
        for page in pages:
            self.deaths_alone.pop(page, None)
            self.out_of_memory.discard(page)

    @property
    def judge(self) -> bool:
        """Whether the next incarnation must run the smoke test before it gets a page."""
        return len(self.blamed) >= JUDGE_AFTER or self.device_errors >= JUDGE_AFTER

    def acquitted(self) -> None:
        """The smoke test passed: the pages were guilty, and counting starts anew."""
        self.blamed.clear()
        self.device_errors = 0
