"""How a run shows that it moves: the live line on a terminal, one line a minute in a pod's log.

Pure formatting. Who calls it when, and what keeps log lines and the live line apart, is the loop's.
"""

from __future__ import annotations

from dataclasses import dataclass

ERASED = "\r\x1b[K"
"""Written before a log line where a live line stands."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands. `done` is ok + skipped; `pages_per_second` counts pages processed by this run."""

    volume: str
    stage: str
    elapsed_s: float
    total: int = 0
    done: int = 0
    failed: int = 0
    deferred: int = 0
    pages_per_second: float = 0.0

    @property
    def left_s(self) -> float | None:
        """Time left at this pace; None before there is a pace, or when nothing is left."""
        left = self.total - self.done - self.failed - self.deferred
        return left / self.pages_per_second if left > 0 and self.pages_per_second > 0 else None


def live_line(standing: Standing, columns: int) -> str:
    """The line that replaces itself, clipped so that it never wraps."""
    parts = [f"{standing.volume} {standing.stage} {clock(standing.elapsed_s)}", *_counts(standing)]
    if standing.left_s is not None:
        parts.append(f"left {clock(standing.left_s)}")
    return ERASED + "   ".join(parts)[: max(0, columns - 1)]


def minute_line(standing: Standing) -> str:
    """One line for the run log."""
    parts = [standing.stage, *_counts(standing)]
    if standing.left_s is not None:
        parts.append(f"about {clock(standing.left_s)} left")
    return f"[{standing.volume}] " + ", ".join(parts)


def clock(seconds: float) -> str:
    """`0:07`, `12:44`, `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def _counts(standing: Standing) -> list[str]:
    if not standing.total:
        return []
    counts = [f"{standing.done}/{standing.total} pages"]
    counts += [f"{n} {what}" for n, what in ((standing.failed, "failed"), (standing.deferred, "deferred")) if n]
    if standing.pages_per_second > 0:
        counts.append(f"{standing.pages_per_second:.2g} pages/s")
    return counts
