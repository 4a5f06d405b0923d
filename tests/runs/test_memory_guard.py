"""The memory guard against a real limit: a cgroup of the run's own (where one can be made), tightened while it runs."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.volume import Running, Volume, steps, wait_for

Make = Callable[..., Volume]
ROOT = Path("/sys/fs/cgroup")
HURRY = "batchpod.memory.guard.PATIENCE_S=1"


@dataclass
class Group:
    """A memory cgroup: v2 where the machine has it, else v1."""

    folder: Path

    @property
    def limit(self) -> Path:
        v2 = self.folder / "memory.max"
        return v2 if v2.exists() else self.folder / "memory.limit_in_bytes"

    def used_bytes(self) -> int:
        """What cannot be taken back, as the guard counts it."""
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        v1, v2 = ("total_rss", "total_shmem", "total_unevictable"), ("anon", "shmem", "unevictable")
        return sum(int(stat[name]) for name in (v2 if "anon" in stat else v1))

    def tighten(self, fraction: float) -> None:
        """Set the limit so that what is in use now is this part of it; nothing where the kernel cannot do that yet."""
        with contextlib.suppress(OSError):
            self.limit.write_text(str(int(self.used_bytes() / fraction)))

    def loosen(self) -> None:
        self.limit.write_text(str(1 << 34))


@pytest.fixture
def group() -> Iterator[Group]:
    name = f"test-{os.getpid()}"
    parent = ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "memory"
    folder = parent / name
    try:
        folder.mkdir()
        made = Group(folder)
        made.limit.write_text(str(1 << 34))
    except OSError as e:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {e}")
    yield made
    end = time.monotonic() + 10
    while (folder / "cgroup.procs").read_text().strip() and time.monotonic() < end:
        time.sleep(0.02)
    folder.rmdir()


def started_in(group: Group, this: Volume, **more: str) -> Running:
    this.launcher = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group.folder)]
    return this.start(HURRY, **more)


def squeeze(run: Running, group: Group, fraction: float, pattern: str) -> None:
    """Hold what is in use at this part of the limit until the log says so."""

    def said() -> object:
        group.tighten(fraction)
        return re.search(pattern, run.log)

    wait_for(said, f"{pattern!r} in the log", 60, run)


def test_memory_is_given_back_step_by_step_before_the_limit_and_the_run_goes_on(volume: Make, group: Group):
    this = volume(30)
    this.use(steps({"0001": "leak:150"}, seconds_per_image=0.1))
    run = started_in(group, this, GPU_STANDBY="true", LOOKAHEAD_PAGES="20", GPU_PAGES="1")
    run.until(r"standby#1 started")
    run.until_stored(3)
    for step in ("drop the standby", "shrink the lookahead", "recycle the gpu process"):
        squeeze(run, group, 0.945, rf"9\d % of the memory limit is in use: {step}")
    group.loosen()
    ended = run.end()
    assert ended.code == 0, ended.log
    assert set(this.outcomes().values()) == {"ok"}
    assert [r["cause"] for r in this.manifest["gpu_restarts"]] == ["memory is short"]
    assert "standby#2" not in ended.log
    assert re.search(r"gpu-0#1 ended with exit status 0 .*memory is short", ended.log)


def test_the_run_ends_with_a_message_where_the_kernel_would_leave_none(volume: Make, group: Group):
    this = volume(40)
    this.use(steps({"0001": "leak:200"}, seconds_per_image=0.1))
    run = started_in(group, this)
    run.until_stored(3)
    squeeze(run, group, 0.975, "% of the memory limit is in use: end the run")
    group.loosen()
    ended = run.end()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert re.fullmatch(r"\d+ % of the memory limit is in use", ended.message["error"])
    assert ended.message["stage"] == "stream"
    assert this.pages_stored() == this.pages_stored("alto")
    assert len(this.pages_stored()) >= 3
    assert this.left_in_workdir() == set()


def test_the_kernel_is_told_whom_to_end_first(volume: Make):
    this = volume(20)
    this.use(steps(seconds_per_image=0.2))
    run = this.start(GPU_STANDBY="true")
    run.until(r"standby#1 started")
    run.until_stored(3)

    def adjustment(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    own = adjustment(run.process.pid)
    actors = ("fetcher", "uploader", "gpu-0", "standby")
    wait_for(lambda: all(adjustment(run.children(name)[-1]) != own for name in actors), "every actor's word", 30, run)
    told = {name: adjustment(run.children(name)[-1]) for name in actors}
    run.kill(15)
    assert run.end().code == 143
    assert told == {"fetcher": 200, "uploader": 200, "gpu-0": 800, "standby": 800}
    assert own < 200
