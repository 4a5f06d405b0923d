"""Looks at the container's memory once a second and does what the guard says, before the kernel ends the whole pod.

Owns what each step gives back; which step is due is guard.py's.
"""

from __future__ import annotations

from batchpod.errors import Cause, Transient
from batchpod.flow.intake import Intake
from batchpod.gpus.pool import Gpus
from batchpod.memory.guard import Guard, Relief
from supervisor.loop import Loop
from supervisor.memory import Cgroup

LEAST_LOOKAHEAD = 4
WHY = "memory is short"


class MemoryWatch:
    def __init__(self, loop: Loop, gpus: Gpus, intake: Intake) -> None:
        self._loop, self._gpus, self._intake = loop, gpus, intake
        self._cgroup, self._guard = Cgroup(), Guard()

    def look(self) -> None:
        """Take one reading and the step that is due.

        Raises:
            Transient: so much is in use that the kernel would end the container next.
        """
        memory = self._cgroup.read()
        relief = self._guard.judge(memory, self._loop.clock.now())
        if memory is None or relief is None:
            return
        if relief is Relief.DROP_STANDBY and self._gpus.standby is None:
            self._gpus.drop_standby(WHY)
            self._guard.in_vain()
            return
        share = f"{100 * memory.fraction:.0f} % of the memory limit is in use"
        self._loop.events.note("memory", f"{share}: {relief}")
        self._relieve(relief, share)

    def _relieve(self, relief: Relief, share: str) -> None:
        match relief:
            case Relief.DROP_STANDBY:
                self._gpus.drop_standby(WHY)
            case Relief.SHRINK_LOOKAHEAD:
                self._intake.lookahead_pages = max(LEAST_LOOKAHEAD, self._intake.lookahead_pages // 4)
            case Relief.RECYCLE_GPU:
                for slot in self._gpus.slots:
                    self._gpus.recycle(slot, WHY)
            case Relief.END_RUN:
                raise Transient("", share, Cause.MEMORY)
