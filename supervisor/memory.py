"""How much memory this container may use and does use, from its cgroup (v2, v1, or none at all)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

UNLIMITED_BYTES = 1 << 60
"""cgroup v1 says 'no limit' by a number near 2^63."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One reading. `used_bytes` is anonymous + shared + unevictable: what the kernel cannot take back."""

    limit_bytes: int
    used_bytes: int

    @property
    def fraction(self) -> float:
        return self.used_bytes / self.limit_bytes


class Cgroup:
    """The memory controller that limits this process."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> None:
        self._limit, self._stat, self._names = _find(root, proc)

    def read(self) -> Memory | None:
        """The current reading; None where nothing limits this process or the files cannot be read."""
        if self._limit is None or self._stat is None:
            return None
        try:
            text = self._limit.read_text().strip()
            stat = dict(line.split() for line in self._stat.read_text().splitlines())
        except (OSError, ValueError):
            return None
        if text == "max" or int(text) >= UNLIMITED_BYTES:
            return None
        return Memory(int(text), sum(int(stat.get(name, 0)) for name in self._names))


def _find(root: Path, proc: Path) -> tuple[Path | None, Path | None, tuple[str, ...]]:
    try:
        groups = [line.split(":", 2) for line in proc.read_text().splitlines()]
    except OSError:
        groups = []
    v2 = next((g[2] for g in groups if len(g) == 3 and g[0] == "0"), "/")
    v1 = next((g[2] for g in groups if len(g) == 3 and "memory" in g[1].split(",")), "/")
    for base in (root / v2.lstrip("/"), root):
        if (base / "memory.max").exists():
            return base / "memory.max", base / "memory.stat", ("anon", "shmem", "unevictable")
    for base in (root / "memory" / v1.lstrip("/"), root / "memory"):
        if (base / "memory.limit_in_bytes").exists():
            names = ("total_rss", "total_shmem", "total_unevictable")
            return base / "memory.limit_in_bytes", base / "memory.stat", names
    return None, None, ()


def rss_bytes(pid: int) -> int:
    """Resident bytes of one process (0 when it is gone); cheap enough for every second, no library needed."""
    try:
        with open(f"/proc/{pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def kernel_state(pid: int) -> str:
    """The kernel's one-letter state of a process (`D` is an uninterruptible sleep), or `gone`."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "gone"
