"""The memory guard: gives memory back step by step before the kernel kills the whole container without a word."""

from __future__ import annotations

from enum import StrEnum

from supervisor.memory import Memory

TIGHT, FULL = 0.92, 0.97
PATIENCE_S = 5.0
"""Time for one step to show before the next is taken."""


class Relief(StrEnum):
    DROP_STANDBY = "drop the standby"
    SHRINK_LOOKAHEAD = "shrink the lookahead"
    RECYCLE_GPU = "recycle the gpu process"
    END_RUN = "end the run"


ORDER = (Relief.DROP_STANDBY, Relief.SHRINK_LOOKAHEAD, Relief.RECYCLE_GPU)


class Guard:
    """Which step comes next. Pure: readings and the time are passed in."""

    def __init__(self) -> None:
        self._next = 0
        self._wait_until = 0.0

    def judge(self, memory: Memory | None, now: float) -> Relief | None:
        """What to do about this reading; the steps begin anew once memory was below the mark again."""
        if memory is None or memory.fraction < TIGHT:
            self._next = 0
            return None
        if memory.fraction >= FULL:
            return Relief.END_RUN
        if now < self._wait_until or self._next >= len(ORDER):
            return None
        relief = ORDER[self._next]
        self._next += 1
        self._wait_until = now + PATIENCE_S
        return relief

    def in_vain(self) -> None:
        """The last step had nothing to give: the next one need not wait."""
        self._wait_until = 0.0
