"""What the kernel says of a process: its CPU time and memory, and whether it has a handler for a signal."""

from __future__ import annotations

import os
from collections.abc import Iterable

from supervisor.memory import rss_bytes

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds of CPU time that a process has used by now, in all its threads; 0.0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    except (OSError, IndexError, ValueError):
        return 0.0


def catches(pid: int, signal_number: int) -> bool:
    """Whether a process has a handler for a signal. One that has none yet may be ended by it."""
    try:
        with open(f"/proc/{pid}/status") as f:
            mask = next((line.split()[1] for line in f if line.startswith("SigCgt:")), "0")
    except OSError:
        return False
    return bool(int(mask, 16) >> (signal_number - 1) & 1)


class Usage:
    """Memory and CPU of processes, sampled whenever `sample` is called; percent of one core since the sample before."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}
        self.rss_bytes: dict[int, int] = {}
        self.cpu_percent: dict[int, int] = {}

    def sample(self, pids: Iterable[int], now: float) -> None:
        """Look at these processes; what was known of others is forgotten. `now` is monotonic."""
        seen: dict[int, tuple[float, float]] = {}
        percent: dict[int, int] = {}
        for pid in pids:
            used_s = cpu_s(pid)
            before_s, before_at = self._seen.get(pid, (used_s, now))
            spent = used_s - before_s
            percent[pid] = round(100 * spent / (now - before_at)) if now > before_at else 0
            seen[pid] = used_s, now
        self._seen, self.cpu_percent = seen, percent
        self.rss_bytes = {pid: rss_bytes(pid) for pid in seen}
