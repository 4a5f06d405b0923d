"""One volume's pages on their way: in (intake.py), over the GPU (feed.py), out (outlet.py).

Puts the three together and answers for the whole: what is over, what a person may do with one page. Every outcome is
register.py's.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.messages import page_name
from batchpod.flow.accounts import Counters, StallClock
from batchpod.flow.feed import Feed
from batchpod.flow.intake import Intake
from batchpod.flow.ledger import Ledger, Page, State
from batchpod.flow.outlet import Outlet
from batchpod.flow.register import Register
from batchpod.services import Service
from batchpod.settings.config import Config
from batchpod.verdict import Trouble
from supervisor.arena import Arena
from supervisor.loop import Loop


class Stream:
    """`say` writes one line into the run log."""

    def __init__(
        self, config: Config, loop: Loop, fetcher: Service, uploader: Service, say: Callable[[str], None]
    ) -> None:
        self.register = Register(say)
        self.intake = Intake(config, loop, fetcher, self.register)
        self.outlet = Outlet(config, loop.events, uploader, self.register)
        self.feed = Feed(loop, self.register, self.intake.arena, self.outlet)
        self.register.settled = self.intake.settled
        self.started = False

    def route(self) -> None:
        """Hand out whatever can be handed out now."""
        if self.started:
            self.intake.order()
            self.feed.hand_out()

    @property
    def over(self) -> bool:
        """Whether every page has its outcome."""
        return self.started and self.ledger.unfinished == 0

    # ------------------------------------------------------------------------------------------------------- what shows

    @property
    def ledger(self) -> Ledger:
        return self.register.ledger

    @property
    def counters(self) -> Counters:
        return self.register.counters

    @property
    def arena(self) -> Arena:
        return self.intake.arena

    @property
    def stalls(self) -> StallClock:
        return self.feed.stalls

    @property
    def backlog_bytes(self) -> int:
        return self.outlet.backlog_bytes

    @property
    def origin_down(self) -> bool:
        return self.intake.origin_down

    @property
    def last_page(self) -> int | None:
        return self.register.last_page

    @property
    def last_error(self) -> tuple[int, str] | None:
        return self.register.last_error

    @property
    def lookahead_pages(self) -> int:
        return self.intake.lookahead_pages

    @property
    def paused(self) -> bool:
        return self.feed.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self.feed.paused = paused

    # --------------------------------------------------------------------------------------------------- a person's wish

    def commanded(self, number: int, action: str, who: str) -> str:
        """`retry` or `fail` one page that is not finished, for the debug CLI; the answer in one sentence.

        Raises:
            ValueError: the page is finished, or is being stored.
        """
        page = self._movable(number)
        was, gpus = page.state, self.feed.gpus
        slot = next((s for s in gpus.slots if number in s.pages), None) if was is State.TRANSCRIBING else None
        if action == "retry":
            if slot is not None:
                gpus.recycle(slot, f"{who} asks for page {page.name} again", now=True)
            elif was is not State.WAITING:
                self.intake.withdraw(number)
                self.ledger.move(number, State.WAITING, f"asked for again by {who}")
            return f"page {page.name} was {was} and is put back"
        if slot is not None:
            slot.pages.pop(number)
            gpus.recycle(slot, f"{who} gives page {page.name} up", now=True)
        self.intake.withdraw(number)
        self.register.fail(number, f"given up by {who}", Trouble.PERSON)
        return f"page {page.name} was {was} and is given up"

    def _movable(self, number: int) -> Page:
        page = self.ledger.pages.get(number)
        if page is None:
            raise ValueError(f"there is no page {page_name(number)}; the volume has {len(self.ledger)}")
        if page.state in (State.OK, State.FAILED, State.SKIPPED):
            raise ValueError(f"page {page.name} is finished ({page.state})")
        if page.state in (State.EXPORTED, State.UPLOADING):
            raise ValueError(f"page {page.name} is being stored and will be finished in a moment")
        return page
