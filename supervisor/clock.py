"""Time as the supervisor counts it: monotonic, and without the spans in which the whole machine stood still.

A machine that is paused (SIGSTOP of everything, a suspended or starved host) makes every deadline look missed. The
loop notices such a pause by its own late turn and notes it here; `age` then leaves it out, so nobody is blamed.
"""

from __future__ import annotations

import time

PAUSE_S = 5.0
"""A turn that comes this much later than it asked for is a pause."""


class Clock:
    def __init__(self) -> None:
        self._pauses: list[tuple[float, float]] = []

    def now(self) -> float:
        """`time.monotonic()`."""
        return time.monotonic()

    def note_pause(self, gap_s: float) -> None:
        """The machine stood still for the `gap_s` seconds that end now."""
        self._pauses.append((self.now(), gap_s))
        del self._pauses[:-100]

    def age(self, at: float) -> float:
        """Seconds since the instant `at`, pauses that ended after it left out; never negative."""
        paused = sum(gap for ended_at, gap in self._pauses if ended_at > at)
        return max(0.0, self.now() - at - paused)
