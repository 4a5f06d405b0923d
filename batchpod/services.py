"""The fetcher and the uploader as the run sees them: one restartable actor each, with what it must be told again.

Owns starts, restarts and their limit, and the beat of the dispatch loop; what they say is stream.py's and run.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.messages import Stop
from batchpod.errors import Cause, Transient
from supervisor.loop import Loop
from supervisor.process import Exit, Incarnation, Plan
from supervisor.restart import RestartLimit

BEAT_S = 60.0
STOP_S = 5.0


class Service:
    """One actor that is restarted whenever it dies, at most 5 times in 10 minutes.

    `plan` makes the plan of the next start, `renew` tells a new incarnation what the old one knew.
    """

    def __init__(self, loop: Loop, name: str, plan: Callable[[], Plan], renew: Callable[[], None]) -> None:
        self._loop, self.name, self._plan, self._renew = loop, name, plan, renew
        self.child: Incarnation | None = None
        self.limit = RestartLimit()
        self.restarts = 0
        self.last_exit = ""
        self.closing = False
        self._restart_asked = False

    def start(self) -> None:
        self.child = self._loop.spawn(self._plan(), "the run begins")

    def send(self, message: Any) -> None:
        if self.child is not None:
            self.child.outgoing.put(message)

    def watch(self) -> None:
        """End a process whose dispatch loop has not turned for 60 s."""
        if self.child is None or self.closing:
            return
        count, at = self.child.marks.beat
        silent_s = self._loop.clock.age(at if count else self.child.started_at)
        if silent_s >= BEAT_S:
            self._loop.dump_and_kill(self.child, f"its dispatch loop has not turned for {silent_s:.0f} s")

    def stuck(self) -> None:
        """It takes no message from its inbox: the same as a loop that does not turn."""
        if self.child is not None and not self.closing:
            self._loop.dump_and_kill(self.child, "it has not taken a message for 60 s")

    def restart(self, why: str, *, now: bool) -> None:
        """A person wants a new process: once what is in hand is done (at most 5 s), or at once. It counts against no
        limit."""
        if self.child is None:
            return
        self._restart_asked = True
        if now:
            self._loop.dump_and_kill(self.child, why)
        else:
            self._loop.stop(self.child, Stop(STOP_S), STOP_S, why)

    def ended(self, child: Incarnation, exit_: Exit, *, counted: bool = True) -> bool:
        """Start again after a death (`counted` against the limit or not); false if it was another's process.

        Raises:
            Transient: it dies too often.
        """
        if child is not self.child:
            return False
        self.child = None
        self.last_exit = exit_.text + (f" ({exit_.asked})" if exit_.asked else "")
        if self.closing:
            return True
        counted, self._restart_asked = counted and not self._restart_asked, False
        if counted and not self.limit.allow(self._loop.clock.now()):
            text = f"the {self.name} died more than {self.limit.count} times in {self.limit.window_s:.0f} s"
            raise Transient("", f"{text}; the last time it {self.last_exit}", Cause.ACTOR_RESTARTS)
        self.restarts += 1
        self.child = self._loop.spawn(self._plan(), f"the one before: {exit_.text}")
        self._renew()
        return True

    def close(self, why: str, *, gently: bool) -> None:
        self.closing = True
        if self.child is None:
            return
        if gently:
            self._loop.stop(self.child, Stop(STOP_S), STOP_S, why)
        else:
            self._loop.kill(self.child, why)
