"""The page ledger: one record a page, one state machine, every transition through one function.

Owns what is known of each page and its whole story; does not decide what happens next (stream.py, blame.py).
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from actors.messages import page_name


class State(StrEnum):
    WAITING = "waiting"
    FETCHING = "fetching"
    FETCHED = "fetched"
    DECODING = "decoding"
    READY = "ready"
    TRANSCRIBING = "transcribing"
    EXPORTED = "exported"
    UPLOADING = "uploading"
    OK = "ok"
    FAILED = "failed"
    DEFERRED = "deferred"
    SKIPPED = "skipped"


FINISHED = frozenset({State.OK, State.FAILED, State.DEFERRED, State.SKIPPED})

_S = State
TRANSITIONS: dict[State, frozenset[State]] = {
    _S.WAITING: frozenset({_S.FETCHING, _S.SKIPPED, _S.FAILED, _S.DEFERRED}),
    _S.FETCHING: frozenset({_S.FETCHED, _S.WAITING, _S.FAILED, _S.DEFERRED}),
    _S.FETCHED: frozenset({_S.DECODING, _S.WAITING, _S.FAILED, _S.DEFERRED}),
    _S.DECODING: frozenset({_S.READY, _S.WAITING, _S.FAILED, _S.DEFERRED}),
    _S.READY: frozenset({_S.TRANSCRIBING, _S.WAITING, _S.FAILED, _S.DEFERRED}),
    _S.TRANSCRIBING: frozenset({_S.EXPORTED, _S.READY, _S.WAITING, _S.FAILED, _S.DEFERRED}),
    _S.EXPORTED: frozenset({_S.UPLOADING, _S.FAILED, _S.DEFERRED}),
    _S.UPLOADING: frozenset({_S.OK, _S.EXPORTED, _S.FAILED, _S.DEFERRED}),
    _S.FAILED: frozenset({_S.DEFERRED}),
    _S.DEFERRED: frozenset({_S.WAITING, _S.FAILED}),
    _S.OK: frozenset(),
    _S.SKIPPED: frozenset(),
}
"""A failed page becomes deferred only where the smoke test shows that the device was to blame; a deferred one becomes
failed on the index's last attempt and is waiting again when a person asks for it."""

STORY = 60
_Step = tuple[State, str, str]


class LedgerError(Exception):
    """A transition that the table does not have: a fault of the program, with the page's last transitions."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One transition: when (wall clock, it is shown to people), into which state, why, by which incarnation."""

    at: float
    state: State
    why: str
    by: str


class Story:
    """A page's last transitions. A thousand pages go through the same few steps: what they share is kept once."""

    __slots__ = ("_at", "_steps")

    def __init__(self) -> None:
        self._at = array("d")
        self._steps: list[_Step] = []

    def add(self, at: float, step: _Step) -> None:
        self._at.append(at)
        self._steps.append(step)
        del self._at[:-STORY], self._steps[:-STORY]

    def last(self, count: int) -> list[Turn]:
        return [Turn(at, *step) for at, step in zip(self._at[-count:], self._steps[-count:], strict=True)]

    def __iter__(self) -> Iterator[Turn]:
        return iter(self.last(STORY))


@dataclass(slots=True)
class Page:
    """What is known of one page. Sizes in pixels and bytes, durations in seconds."""

    number: int
    state: State = State.WAITING
    since_at: float = field(default_factory=time.monotonic)
    reason: str = ""
    holder: str = ""
    width: int = 0
    height: int = 0
    held_bytes: int = 0
    exported_bytes: int = 0
    directory: str = ""
    lines: int | None = None
    fetch_s: float | None = None
    decode_s: float | None = None
    transcribe_s: float | None = None
    upload_s: float | None = None
    story: Story = field(default_factory=Story)

    @property
    def name(self) -> str:
        return page_name(self.number)

    @property
    def pixel_bytes(self) -> int:
        """Bytes of the decoded page: three a pixel."""
        return self.width * self.height * 3


class Ledger:
    """Every page of the volume, by number from 1. Pages of a state come in the order in which they entered it."""

    def __init__(self, count: int) -> None:
        self.pages = {number: Page(number) for number in range(1, count + 1)}
        self._by_state: dict[State, dict[int, None]] = {state: {} for state in State}
        self._by_state[State.WAITING] = dict.fromkeys(self.pages)
        self._steps: dict[_Step, _Step] = {}
        self.moves = 0

    def __getitem__(self, number: int) -> Page:
        return self.pages[number]

    def __len__(self) -> int:
        return len(self.pages)

    def move(self, number: int, state: State, why: str = "", by: str = "") -> Page:
        """Put a page into another state; the reason of a failed or deferred page is kept as its outcome.

        Raises:
            LedgerError: the page cannot go there from where it is.
        """
        page = self.pages[number]
        if state not in TRANSITIONS[page.state]:
            story = "; ".join(f"{t.state} ({t.why})" for t in page.story.last(5))
            raise LedgerError(f"page {page.name} cannot go from {page.state} to {state} ({why}); before: {story}")
        del self._by_state[page.state][number]
        self._by_state[state][number] = None
        page.state, page.since_at, page.holder = state, time.monotonic(), by
        page.reason = why if state in (State.FAILED, State.DEFERRED) else ""
        step = (state, why, by)
        page.story.add(time.time(), self._steps.setdefault(step, step))
        self.moves += 1
        return page

    def to_front(self, number: int) -> None:
        """Let a page be the next of its state."""
        pages = self._by_state[self.pages[number].state]
        del pages[number]
        self._by_state[self.pages[number].state] = {number: None, **pages}

    def numbers(self, *states: State) -> list[int]:
        return [number for state in states for number in self._by_state[state]]

    def first(self, state: State) -> int | None:
        return next(iter(self._by_state[state]), None)

    def each(self, *states: State) -> Iterator[Page]:
        return (self.pages[number] for number in self.numbers(*states))

    def count(self, *states: State) -> int:
        return sum(len(self._by_state[state]) for state in states)

    @property
    def unfinished(self) -> int:
        return len(self.pages) - self.count(*FINISHED)

    def skip(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.move(number, State.SKIPPED, "stored by an earlier run")
