"""A child's first moments: bound to its supervisor's life, in its own process group, its output on its own pipe.

Imports the standard library only until the guards are set, since whatever comes later may hang or crash. The actor's
own entry point is then called as `main(channel, spec)`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import pickle
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any, TextIO

PR_SET_PDEATHSIG = 1
DUMP_SIGNAL = signal.SIGUSR1


class Passed:
    """A descriptor that travels into a spawned child; `detach()` there gives the child's own number."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def detach(self) -> int:
        return self._fd

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            raise TypeError("a Passed descriptor travels only while a process is being spawned")
        return _arrived, (DupFd(self._fd),)


def _arrived(dup: Any) -> Passed:
    return Passed(dup.detach())


@dataclass(slots=True)
class Birth:
    """What a child is born with. `entry` is `module:function`, `spec` a pickle of the actor's own settings."""

    name: str
    incarnation: int
    parent_pid: int
    entry: str
    codec: str
    inbox: Connection
    outbox: Connection
    output: Passed
    marks: Passed
    dump: Passed
    extra: dict[str, Passed]
    spec: bytes
    oom_score_adj: int | None


def main(birth: Birth) -> None:
    """Run one actor until its entry point returns; its exit status is 0 then, 1 after an uncaught exception.

    An end of file on the inbox (the supervisor is gone or has let go) ends it quietly.
    """
    bind_to_parent(birth.parent_pid)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    for stream in (1, 2):
        os.dup2(birth.output.detach(), stream)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable(file=2)
    faulthandler.register(DUMP_SIGNAL, file=birth.dump.detach(), all_threads=True, chain=False)
    if birth.oom_score_adj is not None:
        prefer_for_oom(birth.oom_score_adj)
    sys.stdout, sys.stderr = (_lines_to(fd) for fd in (1, 2))

    from supervisor.marks import MarkWriter
    from supervisor.queues import Channel

    codec = _load(birth.codec)
    channel = Channel(birth.inbox, birth.outbox, codec, MarkWriter(birth.marks.detach()))
    spec = pickle.loads(birth.spec)
    entry = _load(birth.entry)
    descriptors = {name: passed.detach() for name, passed in birth.extra.items()}
    try:
        entry(channel, spec, descriptors)
    except EOFError:
        os._exit(0)
    except BrokenPipeError:
        os._exit(0)


def _lines_to(fd: int) -> TextIO:
    """A text stream over a descriptor that has changed under the old one (which may believe that it can seek)."""
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def bind_to_parent(parent_pid: int) -> None:
    """Die (SIGKILL) with the parent, and at once if it is already gone: compared by pid, since an orphan's new parent
    need not be process 1."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def prefer_for_oom(adjustment: int) -> None:
    """Tell the kernel how gladly it may kill this process when memory runs out (-1000 never to 1000 first)."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write(str(adjustment))


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
