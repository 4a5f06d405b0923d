"""The fetcher and the uploader as the run sees them: one restartable actor each, with what it must be told again.

Owns starts, restarts and their limit, and the beat of the dispatch loop; what they say is stream.py's and turning.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.messages import Stop, page_name
from batchpod.errors import Cause, Transient
from supervisor.lifecycle import Life
from supervisor.loop import Loop
from supervisor.process import Exit, Incarnation, Plan
from supervisor.restart import RestartLimit

BEAT_S = 60.0
STOP_S = 5.0


class Service:
    """One actor that is restarted whenever it dies, at most 5 times in 10 minutes.

    `plan` makes the plan of the next start, `renew` tells a new incarnation what the old one knew. A page that stands
    still in one of its threads for `page_s` ends it too; `stuck_page` is then that page, until the next start.
    """

    def __init__(
        self, loop: Loop, name: str, plan: Callable[[], Plan], renew: Callable[[], None], *, page_s: float
    ) -> None:
        self._loop, self.name, self._plan, self._renew, self._page_s = loop, name, plan, renew, page_s
        self.stuck_page: int | None = None
        self.child: Incarnation | None = None
        self.limit = RestartLimit()
        self.restarts = 0
        self.last_exit = ""
        self.closing = False
        self._restart_asked = self._late = False

    def start(self) -> None:
        self.child = self._loop.spawn(self._plan(), "the run begins")

    def send(self, message: Any) -> None:
        if self.child is not None:
            self.child.outgoing.put(message)

    def watch(self) -> None:
        """End a process whose dispatch loop has not turned for 60 s, or one of whose threads stands still."""
        if self.child is None or self.closing:
            return
        count, at = self.child.marks.beat
        silent_s = self._loop.clock.age(at if count else self.child.started_at)
        late = silent_s >= BEAT_S / 2
        if late and not self._late:
            text = f"its dispatch loop has not turned for {silent_s:.0f} s"
            self._loop.events.note("beat-late", text, actor=self.name, incarnation=self.child.number)
        self._late = late
        if self.child.life is not Life.RUNNING:
            return
        stuck = next((m for m in self.child.marks.tasks() if self._loop.clock.age(m.at) >= self._page_s), None)
        if stuck is not None:
            self.stuck_page = stuck.task
            text = (
                f"page {page_name(stuck.task)} made no progress for {self._page_s:g} s in {stuck.step} ({stuck.detail})"
            )
            self._loop.dump_and_kill(self.child, text)
        elif silent_s >= BEAT_S:
            self._loop.dump_and_kill(self.child, f"its dispatch loop has not turned for {silent_s:.0f} s")

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
            raise Transient("", f"{text}; the last time {exit_.sentence}", Cause.ACTOR_RESTARTS)
        self.restarts += 1
        self.stuck_page = None
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
