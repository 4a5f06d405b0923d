"""The standby: one spare gpu process with its imports done and no model, so that a restart costs a model load only.

Owns its starts, its back-off and its limits; who takes it over, and when, is pool.py's. Its deaths are nobody's fault and
count as no start.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.loop import Loop
from supervisor.process import Exit, Incarnation, Plan
from supervisor.restart import BackOff

STANDBY = "standby"
"""Its name, until it takes over for a gpu actor."""


class Standby:
    """`plan` makes the plan of a start, `start_s` is the deadline of its imports."""

    def __init__(self, loop: Loop, plan: Callable[[], Plan], *, allowed: bool, start_s: float) -> None:
        self._loop, self._plan, self._start_s = loop, plan, start_s
        self.allowed = allowed
        self.child: Incarnation | None = None
        self.ready = False
        self._back_off = BackOff()
        self._not_before = 0.0

    def tend(self, *, wanted: bool) -> None:
        """Start one if it is `wanted`, and end one whose imports take too long."""
        if self.child is not None:
            if not self.ready and self.child.uptime_s >= self._start_s:
                self._loop.kill(self.child, f"its imports took longer than {self._start_s:g} s")
        elif wanted and self.allowed and self._loop.clock.now() >= self._not_before:
            self.ready = False
            self.child = self._loop.spawn(self._plan(), "a spare with its imports done")

    def imported(self) -> None:
        self.ready = True
        self._back_off.succeeded()

    def take(self) -> Incarnation | None:
        """The process, if there is one that lives: from now on it is somebody's."""
        if self.child is None or not self.child.alive:
            return None
        child, self.child = self.child, None
        return child

    def ended(self, exit_: Exit, *, closing: bool) -> None:
        """It is gone: another one after a while, unless they keep dying."""
        self.child = None
        if not self.allowed or closing:
            return
        self._not_before = self._loop.clock.now() + self._back_off.failed()
        if self._back_off.give_up:
            self.allowed = False
            self._loop.output.say(f"WARNING the standby keeps dying ({exit_.text}); going on without one")

    def drop(self, why: str) -> bool:
        """Do without one from now on; whether there was one."""
        self.allowed = False
        if self.child is None:
            return False
        self._loop.kill(self.child, why)
        return True
