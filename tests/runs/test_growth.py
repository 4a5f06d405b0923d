"""Over a thousand pages nothing grows: no process's memory, no thread, no descriptor, no file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.chaos import finished
from tests.doubles import s3 as s3_double
from tests.volume import Running, Volume, steps, wait_for

Make = Callable[..., Volume]
PAGES, SETTLED, LAST = 1000, 200, 980
GROWTH = 0.05
PAGES_AT_ONCE = 2
"""Each has a thread of its own in the gpu process."""
IN_FLIGHT = 40
"""Pages between the GPU and the store, at most: each has three files."""


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
        run = this.start("batchpod.reporter.INTERIM_LEAST_S=1", GPU_STANDBY="true", LOG_SHIP_SECONDS="2")
        most_files = 0

        def at_page(number: int) -> bool:
            nonlocal most_files
            most_files = max(most_files, sum(len(files) for _, _, files in os.walk(this.workdir)))
            return finished(run) >= number

        wait_for(lambda: at_page(SETTLED), "page 200", 120, run)
        early = look(run)
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
    assert most_files <= 3 * IN_FLIGHT + 12, most_files
