"""What a test may leave behind: nothing. Compares what exists before and after it.

Owns the looking, not the judging: `tests/conftest.py` fails the test. Looks at child processes, processes that such
children left to init, descriptors, threads, /dev/shm, and socket files in the test's temporary directories.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SETTLE_S = 10.0

# Started once for the whole interpreter by the first `spawn`; lives until it ends.
RESOURCE_TRACKER = "multiprocessing.resource_tracker"


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything found at one moment, each as a line a person can read."""

    processes: frozenset[str]
    descriptors: frozenset[str]
    threads: frozenset[threading.Thread]
    shared_memory: frozenset[str]
    sockets: frozenset[str]

    def since(self, before: Seen) -> list[str]:
        """What is here now and was not before."""
        return [
            *(f"process {line}" for line in sorted(self.processes - before.processes)),
            *(f"descriptor {line}" for line in sorted(self.descriptors - before.descriptors)),
            *(f"thread {thread.name}" for thread in self.threads - before.threads if thread.is_alive()),
            *(f"shared memory {line}" for line in sorted(self.shared_memory - before.shared_memory)),
            *(f"socket file {line}" for line in sorted(self.sockets - before.sockets)),
        ]


def look(test: str, directories: tuple[Path, ...]) -> Seen:
    """Look around for `test` (its node id); socket files are searched under `directories`."""
    return Seen(
        processes=frozenset(_processes(test)),
        descriptors=frozenset(_descriptors()),
        threads=frozenset(threading.enumerate()),
        shared_memory=frozenset(os.listdir("/dev/shm")),
        sockets=frozenset(str(path) for directory in directories for path in _sockets(directory)),
    )


def left_behind(test: str, directories: tuple[Path, ...], before: Seen) -> list[str]:
    """What is still there once things had time to end; empty is the normal case and costs a few milliseconds."""
    deadline = time.monotonic() + SETTLE_S
    while left := look(test, directories).since(before):
        if time.monotonic() > deadline:
            break
        gc.collect()
        multiprocessing.active_children()  # joins the ones that have ended
        time.sleep(0.05)
    return left


def _processes(test: str) -> Iterator[str]:
    parents = dict(_parents())
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    for pid, parent in parents.items():
        with contextlib.suppress(OSError):  # it has ended since
            folder = Path("/proc", str(pid))
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
            if pid in ours and pid != os.getpid() and RESOURCE_TRACKER not in line:
                yield f"{pid}: {line or 'a zombie'}"
            elif parent == 1 and f"\0PYTEST_CURRENT_TEST={test} ".encode() in b"\0" + (folder / "environ").read_bytes():
                yield f"{pid} (left to init): {line}"


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path("/proc", name, "stat").read_text()
                yield int(name), int(stat.rpartition(")")[2].split()[1])


def _descriptors() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
            target = os.readlink(f"/proc/self/fd/{name}")
            if int(name) != _tracker_descriptor():
                yield f"{name} -> {target}"


def _tracker_descriptor() -> int | None:
    from multiprocessing import resource_tracker

    number: int | None = getattr(resource_tracker._resource_tracker, "_fd", None)  # type: ignore[attr-defined]
    return number


def _sockets(directory: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                if path.is_socket():
                    yield path
