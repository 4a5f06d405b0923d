"""Memory and CPU of every process of a run, from /proc, while it goes on."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.volume import Running

EVERY_S = 0.25
_STARTED = re.compile(r"^\S+ (\S+)#\d+ started, pid (\d+)", re.MULTILINE)
_DONE = re.compile(r"^page \d+ ok", re.MULTILINE)
SUPERVISOR = "supervisor"


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: pages done by then, and anonymous, resident bytes and CPU seconds by actor."""

    done: int
    anonymous: dict[str, int]
    resident: dict[str, int]
    cpu_s: dict[str, float]


class Sampler:
    """Looks at a run's processes while the block lasts."""

    def __init__(self, running: Running) -> None:
        self._running, self._stop = running, threading.Event()
        self._thread = threading.Thread(target=self._look, name="sampler")
        self.samples: list[Sample] = []

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(EVERY_S):
            log = self._running.log
            pids = {SUPERVISOR: self._running.process.pid} | {name: int(pid) for name, pid in _STARTED.findall(log)}
            anonymous, resident, cpu = {}, {}, {}
            for name, pid in pids.items():
                with contextlib.suppress(OSError, IndexError, ValueError):
                    total, used, shared = (int(n) for n in Path(f"/proc/{pid}/statm").read_text().split()[:3])
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    if not total:
                        continue
                    page = os.sysconf("SC_PAGE_SIZE")
                    anonymous[name], resident[name] = (used - shared) * page, used * page
                    cpu[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            self.samples.append(Sample(len(_DONE.findall(log)), anonymous, resident, cpu))

    def at(self, done: int) -> Sample:
        """The first look at which so many pages were done."""
        return next(s for s in self.samples if s.done >= done)

    def last(self) -> Sample:
        """The last look at which every actor was still there."""
        most = max(len(s.cpu_s) for s in self.samples)
        return [s for s in self.samples if len(s.cpu_s) == most][-1]

    def growth(self, since: int) -> dict[str, float]:
        """Anonymous memory from page `since` to the end, as a share; each end is the median of ten looks."""
        early = [s for s in self.samples if s.done >= since][:10]
        late = [s for s in self.samples if s.cpu_s.keys() == self.last().cpu_s.keys()][-10:]

        def level(samples: list[Sample], name: str) -> float:
            values = sorted(s.anonymous[name] for s in samples if name in s.anonymous)
            return float(values[len(values) // 2]) if values else 0.0

        names = [n for n in self.last().anonymous if level(early, n)]
        return {name: level(late, name) / level(early, name) - 1 for name in names}


class Stamped(Running):
    """A run whose output lines carry the monotonic instant at which they came."""

    def _read(self) -> None:
        self.stamps: list[tuple[float, str]] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            text = line.decode("utf-8", "replace")
            self.stamps.append((time.monotonic(), text))
            self._lines.append(text)

    def first(self, pattern: str) -> float:
        """When the first line that matches came."""
        return next(at for at, line in self.stamps if re.search(pattern, line))
