"""The event loop: one thread, one selector, and nothing in a turn that waits for anybody.

Waits for the children's queues, their deaths, their output, signals, the debug socket or the next second; turns what is
ready into happenings and returns them. What they mean is the caller's business.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from supervisor.clock import PAUSE_S, Clock
from supervisor.events import Events
from supervisor.lifecycle import STOP_SIGNALS, Act, Cue, Life
from supervisor.memory import kernel_state
from supervisor.output import Output, Source
from supervisor.process import Exit, Incarnation, Plan, disown
from supervisor.wire import FrameError

TURN_S = 1.0
SLOW_TURN_S = 0.25
CREDIT_POLL_S = 0.002
INBOX_STUCK_S = 60.0


@dataclass(frozen=True, slots=True)
class Said:
    """An actor sent a message."""

    child: Incarnation
    message: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """An actor's process is gone and joined; everything it had sent has come before this."""

    child: Incarnation
    exit: Exit


@dataclass(frozen=True, slots=True)
class Undying:
    """SIGKILL has not ended this process within 30 s; `state` is the kernel's word for what it does."""

    child: Incarnation
    state: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """This actor has not taken a message from its inbox for 60 s."""

    child: Incarnation


@dataclass(frozen=True, slots=True)
class Signalled:
    number: int


Happening = Said | Ended | Undying | Stuck | Signalled


class Loop:
    """Owns every child process and the selector. Use as a context manager: leaving it kills what is left.

    `handler_after` is what SIGTERM, SIGINT and SIGHUP meet once it is left; by default what they met before.
    """

    def __init__(
        self, clock: Clock, events: Events, output: Output, handler_after: signal.Handlers | None = None
    ) -> None:
        self._handler_after = handler_after
        self.clock, self.events, self.output = clock, events, output
        self.children: list[Incarnation] = []
        self._numbers: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()
        self._happenings: list[Happening] = []
        self._stuck: set[int] = set()
        self._turned_at = clock.now()
        self.slowest_turn_s = 0.0
        self._sources: list[Source] = []

    def __enter__(self) -> Loop:
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        # First the pipe: a signal that comes in between meets the handlers from before.
        self._old_wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._old_handlers = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}
        self.add_reader(self._wake_read, self._take_signals)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler if self._handler_after is None else self._handler_after)
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    # -------------------------------------------------------------------------------------------------- descriptors

    def add_reader(self, fd: int, ready: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, ready)

    def watch(self, fd: int, ready: Callable[[], None], *, write: bool) -> None:
        """Call `ready` when `fd` can be read, and with `write` also when it can be written."""
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        if fd in self._selector.get_map():
            self._selector.modify(fd, mask, ready)
        else:
            self._selector.register(fd, mask, ready)

    def remove(self, fd: int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    def add_source(self, source: Source) -> None:
        """Collect what comes on one more output pipe (the supervising process's own)."""
        self._sources.append(source)
        self.add_reader(source.fd, lambda: self._read_output(source))

    # ----------------------------------------------------------------------------------------------------- children

    def spawn(self, plan: Plan, why: str) -> Incarnation:
        """Start the next incarnation of an actor.

        Raises:
            OSError: no process or no descriptor can be had.
            RuntimeError: this is not the main thread; the child would die with the thread that starts it.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a child is started from the main thread only")
        number = self._numbers[plan.name] = self._numbers.get(plan.name, 0) + 1
        child = Incarnation(plan, number, self.clock)
        self.children.append(child)
        self.add_reader(child.incoming.fileno(), lambda: self._read_queue(child))
        self.add_reader(child.output.fd, lambda: self._read_output(child.output))
        self.add_reader(child.pidfd, lambda: self._bury(child))
        self.events.note("spawn", f"started, pid {child.pid} ({why})", actor=child.name, incarnation=number)
        return child

    def rename(self, child: Incarnation, name: str) -> None:
        """Give a standby the name and the next number of the actor it takes over for."""
        child.name = name
        child.output.name = name
        child.number = self._numbers[name] = self._numbers.get(name, 0) + 1

    def stop(self, child: Incarnation, message: Any, within_s: float, reason: str) -> None:
        """Ask a child to end; after `within_s` it is killed."""
        if child.cue(Cue.STOP, reason, within_s) is Act.ASK:
            child.outgoing.put(message)

    def dump_and_kill(self, child: Incarnation, reason: str) -> None:
        """Stack dump, at most half a second, then SIGKILL of the group."""
        self.events.note("dump", f"is asked for its stacks: {reason}", actor=child.name, incarnation=child.number)
        child.cue(Cue.DUMP, reason)

    def kill(self, child: Incarnation, reason: str) -> None:
        if child.life not in (Life.KILLING, Life.UNDYING):
            self.events.note("kill", f"is killed: {reason}", actor=child.name, incarnation=child.number)
        child.cue(Cue.KILL, reason)

    def kill_all(self, wait_s: float = 5.0) -> None:
        """SIGKILL every group, then join; for the very end only (this one waits)."""
        for child in self.children:
            child.kill_group()
        for child in list(self.children):
            child.process.join(wait_s)
            if child.process.exitcode is None:
                self.output.say(f"{child.name}#{child.number} (pid {child.pid}) does not die")
                self.children.remove(child)
                disown(child.process)
                continue
            self._bury(child)
        self._happenings.clear()

    # --------------------------------------------------------------------------------------------------------- turn

    def turn(self, most_s: float = TURN_S) -> list[Happening]:
        """Wait at most `most_s` (never more than a second), and return what has happened, in order."""
        self._note_lateness(self.clock.now() - self._turned_at)
        wait_s = 0.0 if self._happenings else min(most_s, TURN_S, self._soonest())
        slept_until = self.clock.now() + wait_s
        ready = self._selector.select(wait_s)
        self._turned_at = self.clock.now()
        # Before anything is judged by its age: a pause that is noted a turn later blames somebody first.
        self._note_pause(self._turned_at - slept_until)
        for key, _ in ready:
            if key.fd in self._selector.get_map():
                key.data()
        for child in list(self.children):
            self._tend(child)
        self.output.stdout.flush()
        happenings, self._happenings = self._happenings, []
        return happenings

    def _note_lateness(self, busy_s: float) -> None:
        self.slowest_turn_s = max(self.slowest_turn_s, busy_s)
        if not self._note_pause(busy_s) and busy_s > SLOW_TURN_S:
            self.events.note("slow-turn", f"a turn of the loop took {busy_s:.2f} s", quiet=True)

    def _note_pause(self, gap_s: float) -> bool:
        if gap_s <= PAUSE_S:
            return False
        self.clock.note_pause(gap_s)
        self.events.note("pause", f"the machine stood still for {gap_s:.1f} s; every deadline moves by that")
        return True

    def _soonest(self) -> float:
        if any(c.outgoing.depth and not c.outgoing.closed for c in self.children):
            return CREDIT_POLL_S
        if any(c.life is Life.DUMPING for c in self.children) or self.output.stdout.pending:
            return 0.02
        return TURN_S

    def _tend(self, child: Incarnation) -> None:
        child.outgoing.flush()
        if child.time_up():
            was, state = child.life, kernel_state(child.pid)
            if child.cue(Cue.TIME_UP) is Act.REPORT:
                self._happenings.append(Undying(child, state))
            elif was in (Life.STOPPING, Life.DUMPING):
                why = "it did not stop in time" if was is Life.STOPPING else child.asked
                self.events.note(
                    "kill", f"is killed in kernel state {state}: {why}", actor=child.name, incarnation=child.number
                )
        if child.outgoing.stuck_s() > INBOX_STUCK_S and child.life is Life.RUNNING and child.pid not in self._stuck:
            self._stuck.add(child.pid)
            self._happenings.append(Stuck(child))
        if child.life is not Life.RUNNING and child in self.children and child.has_died():
            self._bury(child)

    def _read_queue(self, child: Incarnation) -> None:
        try:
            self._happenings += [Said(child, message) for message in child.incoming.take()]
        except FrameError as e:
            self.remove(child.incoming.fileno())
            self.kill(child, f"it wrote something that is no message: {e}")
        if child.incoming.ended:
            self.remove(child.incoming.fileno())

    def _read_output(self, source: Source) -> None:
        if not self.output.drain(source):
            self.remove(source.fd)

    def _bury(self, child: Incarnation) -> None:
        """Reap a dead child: its group is killed, its last messages and lines are taken, its descriptors closed."""
        if child not in self.children:
            return
        child.cue(Cue.DIED)
        ended = child.reap()
        for fd in (child.incoming.fileno(), child.output.fd, child.pidfd):
            self.remove(fd)
        with contextlib.suppress(FrameError):
            self._happenings += [Said(child, message) for message in child.incoming.take()]
        self.output.drain(child.output)
        self.output.emit(child.output.rest())
        if ended.stacks:
            self.output.say(f"stacks of {child.name}#{child.number} before it was killed:")
            self.output.emit(ended.stacks.encode())
        self.children.remove(child)
        self._happenings.append(Ended(child, ended))
        text = f"{ended.text} after {ended.uptime_s:.1f} s" + (f" ({ended.asked})" if ended.asked else "")
        self.events.note("exit", text, actor=child.name, incarnation=child.number)
        child.close()

    def _take_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(self._wake_read, 256):
                if number in STOP_SIGNALS:
                    self._happenings.append(Signalled(number))
