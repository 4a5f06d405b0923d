"""One incarnation of an actor: its process, its two queues, its marks, its output and its stack dump.

Starts it, signals it and reaps it; does not decide when. Everything here belongs to this start alone and goes with it,
so that nothing a killed process left behind can touch its successor.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess, _children  # type: ignore[attr-defined]
from typing import Any

from supervisor import marks as progress
from supervisor.child import DUMP_SIGNAL, Birth, Passed, main
from supervisor.clock import Clock
from supervisor.lifecycle import WITHIN_S, Act, Cue, Life, step
from supervisor.output import Source
from supervisor.queues import Incoming, Outgoing
from supervisor.wire import Codec

DUMP_QUIET_S = 0.05


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start an actor. `entry` and `codec_name` are `module:attribute`; `spec` is pickled for the child alone."""

    name: str
    entry: str
    codec: Codec
    codec_name: str
    spec: Any
    environment: Mapping[str, str]
    descriptors: Mapping[str, int] = field(default_factory=dict)
    oom_score_adj: int | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How an incarnation ended. `code` is the exit status, or None when `signal_name` says which signal ended it."""

    name: str
    incarnation: int
    pid: int
    code: int | None
    signal_name: str
    uptime_s: float
    asked: str
    torn: bool
    stacks: str
    tasks: tuple[progress.Mark, ...]

    @property
    def text(self) -> str:
        """`killed by signal 11 (SIGSEGV)` or `ended with exit status 3`."""
        if self.signal_name:
            return f"killed by signal {signal.Signals[self.signal_name].value} ({self.signal_name})"
        return f"ended with exit status {self.code}"

    @property
    def sentence(self) -> str:
        """The same with its subject: `it was killed by …`, `it ended with …`."""
        return f"it was {self.text}" if self.signal_name else f"it {self.text}"


class Incarnation:
    """A started process. All methods return at once; `life` follows the table in lifecycle.py."""

    def __init__(self, plan: Plan, number: int, clock: Clock) -> None:
        self.plan, self.name, self.number = plan, plan.name, number
        self._clock = clock
        self.started_at = clock.now()
        self.life = Life.RUNNING
        self.history: list[str] = []
        self.asked = ""
        self._since = self.started_at
        self._within_s: float | None = None
        self._dumped = False
        self._dump_from = 0
        self._dump_size = (0, self.started_at)
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        inbox, our_outgoing = context.Pipe(duplex=False)
        our_incoming, outbox = context.Pipe(duplex=False)
        output_read, output_write = os.pipe()
        self._marks_fd = progress.create()
        self._dump_fd = os.memfd_create("stacks", os.MFD_CLOEXEC)
        birth = Birth(
            name=self.name,
            incarnation=self.number,
            parent_pid=os.getpid(),
            entry=self.plan.entry,
            codec=self.plan.codec_name,
            inbox=inbox,
            outbox=outbox,
            output=Passed(output_write),
            marks=Passed(self._marks_fd),
            dump=Passed(self._dump_fd),
            extra={name: Passed(fd) for name, fd in self.plan.descriptors.items()},
            spec=pickle.dumps(self.plan.spec),
            oom_score_adj=self.plan.oom_score_adj,
        )
        self.process = context.Process(target=main, args=(birth,), name=f"{self.name}#{self.number}", daemon=True)
        try:
            with _environment(self.plan.environment), _no_main_module():
                self.process.start()
        finally:
            inbox.close()
            outbox.close()
            os.close(output_write)
        self.pid = self.process.pid or 0
        self.pidfd = os.pidfd_open(self.pid)
        self.marks = progress.MarkReader(self._marks_fd)
        self.outgoing = Outgoing(our_outgoing, self.plan.codec, self.marks, self._clock)
        self.incoming = Incoming(our_incoming, self.plan.codec)
        self.output = Source(self.name, output_read)

    # ------------------------------------------------------------------------------------------------ ways to end

    def cue(self, cue: Cue, reason: str = "", within_s: float | None = None) -> Act | None:
        """Move along the ladder and do what the table says; returns what is left to the caller (ASK, REPORT, REAP)."""
        taken = step(self.life, cue, tuple(self.history))
        if taken.state is not self.life:
            self.history.append(f"{self.life} -> {taken.state} ({cue}{': ' + reason if reason else ''})")
            self.life, self._since = taken.state, self._clock.now()
            self._within_s = WITHIN_S.get(taken.state, within_s)
            self.asked = self.asked or reason
        if taken.act is Act.DUMP:
            self._dumped = True
            self.request_dump()
        elif taken.act is Act.KILL:
            self.kill_group()
        return taken.act

    def time_up(self) -> bool:
        """Whether the present state has lasted as long as it may (a dump that is complete is long enough)."""
        if self.life is Life.DUMPING and self.dump_complete():
            return True
        return self._within_s is not None and self._clock.age(self._since) >= self._within_s

    def has_died(self) -> bool:
        """Whether the process has ended; it is left to be reaped, so that its group's id cannot be used again."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    @property
    def alive(self) -> bool:
        """Whether it runs and nobody has asked it to end."""
        return self.life is Life.RUNNING and not self.has_died()

    def kill_group(self) -> None:
        """SIGKILL to the process and to everything it started."""
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)

    def reap(self) -> Exit:
        """Join the dead process and say how it ended. What it had sent can still be taken; then `close`."""
        self.kill_group()
        self.process.join()
        code = self.process.exitcode
        name = signal.Signals(-code).name if code is not None and code < 0 else ""
        return Exit(
            name=self.name,
            incarnation=self.number,
            pid=self.pid,
            code=None if name else code,
            signal_name=name,
            uptime_s=self._clock.now() - self.started_at,
            asked=self.asked,
            torn=self.incoming.torn,
            stacks=self.stacks() if self._dumped else "",
            tasks=tuple(self.marks.tasks()),
        )

    def close(self) -> None:
        """Let go of every descriptor of this incarnation."""
        self.outgoing.close()
        self.incoming.close()
        self.marks.close()
        for fd in (self._marks_fd, self._dump_fd, self.pidfd, self.output.fd):
            os.close(fd)
        self.process.close()

    # ------------------------------------------------------------------------------------------------ stack dumps

    def request_dump(self) -> None:
        """Ask for the stacks of all threads (answered without the GIL; read them with `stacks`)."""
        self._dump_size = (0, self._clock.now())
        self._dump_from = os.fstat(self._dump_fd).st_size
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, DUMP_SIGNAL)

    def stacks(self) -> str:
        """What the last dump request has brought so far."""
        return os.pread(self._dump_fd, 1 << 20, self._dump_from).decode("utf-8", "replace")

    def dump_complete(self) -> bool:
        """Whether the dump asked for last has come and grows no more."""
        size = os.fstat(self._dump_fd).st_size
        if size != self._dump_size[0]:
            self._dump_size = (size, self._clock.now())
        return size > self._dump_from and self._clock.age(self._dump_size[1]) >= DUMP_QUIET_S

    def forget_stacks(self) -> None:
        """Give back the memory of a dump that was read. The child writes at the offset that both share."""
        if self.life is not Life.DUMPING:
            os.ftruncate(self._dump_fd, 0)
            os.lseek(self._dump_fd, 0, os.SEEK_SET)

    @property
    def uptime_s(self) -> float:
        return self._clock.now() - self.started_at


def disown(process: BaseProcess) -> None:
    """Let this program end without the process: `multiprocessing` would wait for it at exit, for ever."""
    _children.discard(process)


def thread_stack(stacks: str, thread: int, frames: int = 6) -> str:
    """The innermost `frames` of one thread out of a faulthandler dump, as `file:line in function` joined by ` < `.

    `thread` is the ident that the thread itself reported; empty when the dump does not hold it.
    """
    match = re.search(rf"^(?:Current thread|Thread) 0x0*{thread:x} .*?:\n((?:  File .*\n?)*)", stacks, re.MULTILINE)
    if match is None:
        return ""
    found = re.findall(r'File "([^"]*)", line (\d+) in (\S+)', match.group(1))
    return " < ".join(f"{'/'.join(path.split('/')[-2:])}:{line} in {name}" for path, line, name in found[:frames])


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """The process's environment is exactly `wanted` while a child is started (the child inherits it)."""
    saved = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(wanted)
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Hide the program's main module while a child is started, or the child would import it before its guards are set."""
    main_module = sys.modules["__main__"]
    spec, path = getattr(main_module, "__spec__", None), main_module.__dict__.pop("__file__", None)
    main_module.__spec__ = None
    try:
        yield
    finally:
        main_module.__spec__ = spec
        if path is not None:
            main_module.__file__ = path
