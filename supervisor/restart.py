"""How often something may be restarted before it is given up."""

from __future__ import annotations

from collections import deque

FIRST_WAIT_S = 1.0


class RestartLimit:
    """At most `count` restarts in any `window_s` seconds."""

    def __init__(self, count: int = 5, window_s: float = 600.0) -> None:
        self.count, self.window_s = count, window_s
        self._at: deque[float] = deque()

    def allow(self, now: float) -> bool:
        """Whether one more restart may happen at `now`; it is counted if so."""
        while self._at and now - self._at[0] > self.window_s:
            self._at.popleft()
        if len(self._at) >= self.count:
            return False
        self._at.append(now)
        return True


class BackOff:
    """Doubling waits for something that is tried again: 1 s, 2 s, 4 s, … at most `longest_s`; `give_up` after `tries`."""

    def __init__(self, tries: int = 5, longest_s: float = 60.0) -> None:
        self.tries, self.longest_s = tries, longest_s
        self.failures = 0

    def failed(self) -> float:
        """Count a failure; the seconds to wait before the next try."""
        self.failures += 1
        return min(self.longest_s, FIRST_WAIT_S * 2.0 ** (self.failures - 1))

    def succeeded(self) -> None:
        self.failures = 0

    @property
    def give_up(self) -> bool:
        return self.failures >= self.tries
