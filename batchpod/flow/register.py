"""The register of a volume's pages: where each is, what became of it, and what is said of that.

Every outcome goes through `fail` and `defer` here. Owns the ledger and the counts; knows no actor and decides nothing
(stream.py and its parts do).
"""

from __future__ import annotations

from collections.abc import Callable

from batchpod.flow.accounts import Counters
from batchpod.flow.ledger import Ledger, Page, State
from batchpod.verdict import Trouble

_BEFORE_PIXELS = (State.WAITING, State.FETCHING, State.FETCHED, State.DECODING)


class Register:
    """`say` writes one line into the run log. `settled` is told of every page that has its outcome."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.ledger = Ledger(0)
        self.counters = Counters()
        self.last_page: int | None = None
        self.last_error: tuple[int, str] | None = None
        self.troubles: dict[int, Trouble] = {}
        self.settled: Callable[[int], None] = lambda number: None

    def begin(self, count: int) -> None:
        self.ledger = Ledger(count)

    def expected(self, number: int, *states: State) -> Page | None:
        """The page, if it is where a message expects it; else the message is late and is dropped."""
        page = self.ledger.pages.get(number)
        if page is not None and page.state in states:
            return page
        self.counters.late_messages += 1
        return None

    def ok(self, page: Page) -> None:
        """A page is stored."""
        self.ledger.move(page.number, State.OK, f"{page.lines} lines", "uploader")
        self.last_page = page.number
        self.say(f"page {page.name} ok: {page.lines} lines, {page.transcribe_s or 0.0:.1f} s")

    def fail(self, number: int, reason: str, trouble: Trouble | None = None) -> None:
        """A page's outcome is `failed`, for good. By default `trouble` follows from how far it had come."""
        self._outcome(number, State.FAILED, reason, trouble)

    def defer(self, number: int, reason: str, trouble: Trouble | None = None, *, quiet: bool = False) -> None:
        """A page cannot be had now; another attempt of the volume may get it."""
        self._outcome(number, State.DEFERRED, reason, trouble, quiet=quiet)

    def _outcome(
        self, number: int, state: State, reason: str, trouble: Trouble | None, *, quiet: bool = False
    ) -> None:
        seen = self.ledger[number].state not in _BEFORE_PIXELS
        self.troubles[number] = trouble or (Trouble.MODEL if seen else Trouble.IMAGE)
        page = self.ledger.move(number, state, reason)
        self.settled(number)
        self.last_page = number
        self.last_error = (number, reason)
        if not quiet:
            self.say(f"page {page.name} {state}: {reason}")
