"""Over a thousand pages nothing grows: no process's memory, no thread, no descriptor, no file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.chaos import finished
from tests.doubles import s3 as s3_double
from tests.volume import Running, Volume, steps, wait_for

Make = Callable[..., Volume]
PAGES, SETTLED, IMPORTED, LAST = 1000, 200, 500, 980
"""The standby's imports give way to the pages, and are done a little later."""
GROWTH = 0.05
PAGES_AT_ONCE = 2
"""Each has a thread of its own in the gpu process."""
GONE_AFTER_S = 5.0
_FILE, _DONE = re.compile(r"(\d{4})\.(?:page|alto|tree)\.\w+"), re.compile(r"^page (\d{4}) ok", re.MULTILINE)


class Leftovers:
    """Files in the workdir of pages that have been done for a while; `look` again and again."""

    def __init__(self, run: Running, workdir: Path) -> None:
        self._run, self._workdir = run, workdir
        self._done_at: dict[str, float] = {}
        self.found: set[str] = set()
        self.seen = 0

    def look(self) -> None:
        now = time.monotonic()
        for page in _DONE.findall(self._run.log):
            self._done_at.setdefault(page, now)
        there = {file: match[1] for _, _, files in os.walk(self._workdir) for file in files if (match := _FILE.fullmatch(file))}
        self.seen += len(there)
        self.found |= {file for file, page in there.items() if now - self._done_at.get(page, now) > GONE_AFTER_S}


def anonymous_bytes(pid: int) -> int:
    found = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def look(run: Running) -> dict[str, tuple[int, int, int]]:
    """Anonymous bytes, threads and descriptors of each process of the run."""
    actors = {name: run.children(name)[-1] for name in ("fetcher", "uploader", "gpu-0", "standby")}
    pids = {"supervisor": run.process.pid, **actors}
    return {
        name: (anonymous_bytes(pid), psutil.Process(pid).num_threads(), len(os.listdir(f"/proc/{pid}/fd")))
        for name, pid in pids.items()
    }


def test_a_thousand_pages_leave_every_process_as_large_as_two_hundred(volume: Make):
    with s3_double.running() as store:
        this = volume(PAGES, size=(48, 64), endpoint=store.url)
        this.use(steps())
        run = this.start("batchpod.reporting.reporter.INTERIM_LEAST_S=1", GPU_STANDBY="true", LOG_SHIP_SECONDS="2")
        leftovers = Leftovers(run, this.workdir)

        def at_page(number: int) -> bool:
            leftovers.look()
            return finished(run) >= number

        wait_for(lambda: at_page(SETTLED), "page 200", 120, run)
        early = look(run)
        wait_for(lambda: at_page(IMPORTED), "page 500", 200, run)
        early["standby"] = look(run)["standby"]
        wait_for(lambda: at_page(LAST), "the last pages", 300, run)
        late = look(run)
        ended = run.end()
        assert ended.code == 0, ended.log
        assert "COMPLETE 1000 pages (1000 processed)" in ended.last_line
    print({name: f"{early[name][0] / 2**20:.1f} MiB {late[name][0] / early[name][0] - 1:+.1%}" for name in early})
    for name, (size, threads, descriptors) in early.items():
        assert late[name][0] <= size * (1 + GROWTH), (name, early, late)
        assert late[name][1] <= threads + PAGES_AT_ONCE, (name, early, late)
        assert late[name][2] <= descriptors + 4, (name, early, late)
    assert not leftovers.found
    assert leftovers.seen > 100, "the looks saw no page's files at all"
