"""What a run adds up: idle time by cause, bytes, cache counts. Pure but for the clock it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Idle(StrEnum):
    """Why a loaded gpu actor holds no page."""

    NO_PAGE = "no page ready"
    STORE = "upload backlog"
    PAUSED = "paused"
    ENDING = "nothing left"


@dataclass(slots=True)
class StallClock:
    """Integrates each slot's idle time by cause, from the first page handed over to the last outcome."""

    idle_s: dict[Idle, float] = field(default_factory=lambda: dict.fromkeys(Idle, 0.0))
    _state: dict[str, Idle] = field(default_factory=dict)
    _at: float | None = None
    _slots: int = 1

    def update(self, now: float, slots: int, idle: Mapping[str, Idle]) -> None:
        """Charge the time since the last call to the causes given then; `idle` names the slots that are idle now."""
        if self._at is not None:
            for cause in self._state.values():
                self.idle_s[cause] += (now - self._at) / self._slots
        self._at, self._slots, self._state = now, max(1, slots), dict(idle)

    @property
    def running(self) -> bool:
        return self._at is not None

    def stop(self, now: float) -> None:
        self.update(now, self._slots, {})
        self._at = None

    @property
    def gpu_stall_s(self) -> float:
        return self.idle_s[Idle.NO_PAGE]

    @property
    def store_stall_s(self) -> float:
        return self.idle_s[Idle.STORE]


@dataclass(slots=True)
class Counters:
    bytes_fetched: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_stored: int = 0
    errors: int = 0
    late_messages: int = 0
