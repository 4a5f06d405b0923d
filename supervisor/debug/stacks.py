"""Stack dumps on request: asks a live child for them and gives them once they are complete, without waiting.

The child needs no free GIL for it (faulthandler writes them from a signal handler), so a hung one answers too.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.child import DUMP_SIGNAL
from supervisor.debug.protocol import Kind, Refused
from supervisor.lifecycle import DUMP_S, Life
from supervisor.loop import Loop
from supervisor.memory import kernel_state
from supervisor.process import Incarnation
from supervisor.procfs import catches


@dataclass(slots=True)
class _Asked:
    child: Incarnation
    at: float
    text: str | None = None


class Stacks:
    """Requests under way, one a child: who asks meanwhile gets the same dump."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._asked: dict[int, _Asked] = {}

    def ask(self, child: Incarnation) -> None:
        """Ask a child for its stacks.

        Raises:
            Refused: it has only just started, and the signal would end it.
        """
        if self._pending(self._asked.get(child.pid)):
            return
        if child.life not in (Life.RUNNING, Life.STOPPING, Life.DUMPING) or not catches(child.pid, DUMP_SIGNAL):
            state = kernel_state(child.pid)
            text = f"{child.name} (pid {child.pid}, {child.life}, kernel state {state}) cannot give its stacks now"
            raise Refused(Kind.NOT_RUNNING, f"{text}: it has only just started, or is being ended")
        if child.life is not Life.DUMPING:
            child.request_dump()
        self._asked[child.pid] = _Asked(child, self._loop.clock.now())

    def text(self, child: Incarnation) -> str | None:
        """The dump; None until it is complete, at the latest half a second after it was asked for.

        Raises:
            Refused: the process has ended since.
        """
        asked = self._asked.get(child.pid)
        if asked is None:
            raise Refused(Kind.NOT_RUNNING, f"{child.name} (pid {child.pid}) has ended since it was asked")
        if asked.text is not None:
            return asked.text
        late = self._loop.clock.now() - asked.at >= DUMP_S
        if not (child.dump_complete() or late):
            return None
        state = kernel_state(child.pid)
        nothing = f"(no stack came within {DUMP_S:g} s; the kernel says that the process is in state {state})\n"
        asked.text = child.stacks() or nothing
        child.forget_stacks()
        return asked.text

    def forget(self, child: Incarnation) -> None:
        """The process is gone."""
        self._asked.pop(child.pid, None)

    def _pending(self, asked: _Asked | None) -> bool:
        """Asked for not long ago and not complete; whoever asked may have left without taking it."""
        return asked is not None and asked.text is None and self._loop.clock.now() - asked.at < DUMP_S
