"""Who may send a request now: the run's total at once, and for each host as many and as fast as it bears.

A host that answers 429 or 503 is left alone for a while and then asked at less than the rate that it last
bore, so that one burst does not burn the attempts of every page that happened to be under way; each good
answer speeds it up again. A host's slowness never holds back another host. Waiting requests go in page order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

LONGEST_HOLD_S = 60.0
LONGEST_SPACING_S = 10.0
LONGEST_BLIND_S = 1.0
"""Between requests to a host that has answered none well of late."""
_SAFE_SHARE = 0.7
"""Share of the rate a host last bore that it is asked at after it complained."""
_FORGIVEN_AFTER_S = 30.0
_SAID_AGAIN_AFTER_S = 60.0


@dataclass(slots=True)
class Turn:
    """Leave to send one request; `good` or `complained` tells what came of it."""

    host: Host
    sent_at: float


@dataclass(slots=True)
class Host:
    """What is known of one host; times are the loop's. `bore` counts the good answers of the second before it last
    complained, those that were still under way included."""

    name: str
    limit: float
    active: int = 0
    spacing_s: float = 0.0
    next_at: float = 0.0
    slowed_at: float = float("-inf")
    said_at: float = float("-inf")
    safe_spacing_s: float = 0.0
    spacing_before_s: float = 0.0
    bore: int = 0
    good_at: deque[float] = field(default_factory=lambda: deque(maxlen=256))
    complaints: int = 0

    def sped_up(self, sent_at: float, now: float, most: int) -> None:
        """A good answer: a little more at once, a little faster; slowly where it was too fast before.

        One to a request from before the last slow-down tells what the host bore then.
        """
        self.good_at.append(now)
        self.complaints = 0
        if sent_at < self.slowed_at:
            self.bore += 1
            self._slow_to_what_it_bore()
            return
        self.limit = min(float(most), self.limit + 1 / self.limit)
        cautious = self.spacing_s <= self.safe_spacing_s and now - self.slowed_at < _FORGIVEN_AFTER_S
        self.spacing_s *= 0.995 if cautious else 0.9
        if self.spacing_s < 0.01:
            self.spacing_s = 0.0

    def slowed(self, sent_at: float, now: float, hold_s: float, status: int) -> None:
        """A complaint: wait, then ask slower. Those sent before the last slow-down say nothing new.

        A host that only ever answers 503 is down, and being asked slowly will not mend it.
        """
        self.complaints += 1
        self.next_at = max(self.next_at, now + hold_s)
        bore = sum(1 for at in self.good_at if now - at <= 1.0)
        if sent_at < self.slowed_at or (status != 429 and not bore):
            return
        self.slowed_at = now
        self.limit = max(1.0, self.limit / 2)
        self.bore = bore
        self.spacing_before_s = self.spacing_s
        self._slow_to_what_it_bore()

    def _slow_to_what_it_bore(self) -> None:
        bore_s = 1 / self.bore if self.bore else min(LONGEST_BLIND_S, max(2 * self.spacing_before_s, 0.25))
        self.spacing_s = min(LONGEST_SPACING_S, max(self.spacing_before_s, bore_s / _SAFE_SHARE))
        self.safe_spacing_s = min(LONGEST_SPACING_S, bore_s * 1.2)


@dataclass(slots=True)
class _Waiting:
    order: int
    host: Host
    granted: asyncio.Future[Turn]


class Pacing:
    """At most `at_once` requests under way in all. One event loop's thread only."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._hosts: dict[str, Host] = {}
        self._active = 0
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def turn(self, host_name: str, order: int) -> AsyncIterator[Turn]:
        """Wait for leave to ask `host_name`; a lower `order` goes first."""
        host = self._hosts.setdefault(host_name, Host(host_name, float(self._at_once)))
        waiting = _Waiting(order, host, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._waiting.sort(key=lambda w: w.order)
        self._grant()
        try:
            yield await waiting.granted
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            if waiting.granted.done() and not waiting.granted.cancelled():
                host.active -= 1
                self._active -= 1
            self._grant()

    def good(self, turn: Turn) -> None:
        """The host answered as it should (an image, or a plain no)."""
        turn.host.sped_up(turn.sent_at, asyncio.get_running_loop().time(), self._at_once)
        self._grant()

    def complained(self, turn: Turn, status: int, retry_after_s: float | None) -> None:
        """The host asked for less. A single 503 may be about one page: the host is then held only a moment."""
        asked_s = min(LONGEST_HOLD_S, retry_after_s if retry_after_s is not None else 0.5)
        alone = status != 429 and turn.host.complaints == 0
        now = asyncio.get_running_loop().time()
        if now - turn.host.said_at > _SAID_AGAIN_AFTER_S:
            turn.host.said_at = now
            log.info("%s answers %d: it is asked more slowly for a while", turn.host.name, status)
        turn.host.slowed(turn.sent_at, now, min(asked_s, 0.5) if alone else asked_s, status)

    def _grant(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        earliest: float | None = None
        for waiting in list(self._waiting):
            host = waiting.host
            if self._active >= self._at_once:
                break
            if waiting.granted.done() or host.active >= int(host.limit):
                continue
            if now < host.next_at:
                earliest = host.next_at if earliest is None else min(earliest, host.next_at)
                continue
            self._waiting.remove(waiting)
            host.active += 1
            self._active += 1
            host.next_at = now + host.spacing_s
            waiting.granted.set_result(Turn(host, now))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if earliest is None else loop.call_at(earliest, self._grant)
