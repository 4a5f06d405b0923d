"""A process that not even SIGKILL reaches: it is in a frozen cgroup, where one can be made."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

FREEZER = Path("/sys/fs/cgroup/freezer")
DEADLINE_S = 30.0


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process in a frozen cgroup, in which not even SIGKILL reaches it."""
    group = FREEZER / f"test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as e:
        pytest.skip(f"no freezer cgroup can be made here: {e}")
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        end = time.monotonic() + DEADLINE_S
        while (group / "cgroup.procs").read_text().strip() and time.monotonic() < end:
            time.sleep(0.02)
        group.rmdir()
