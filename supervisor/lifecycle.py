"""How one child process lives and dies: a table of states and a pure step function.

The ladder: asked to stop -> stack dump (at most half a second) -> SIGKILL of the group -> joined. A process that
SIGKILL does not end within 30 s is undying: its memory and device are not coming back.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum

DUMP_S = 0.5
UNDYING_S = 30.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What has the whole program end: from the kubelet, from a terminal, from a terminal that is gone."""


class Life(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    DUMPING = "dumping"
    KILLING = "killing"
    UNDYING = "undying"
    GONE = "gone"


class Cue(StrEnum):
    """What can happen to a process: wishes of the policy, time running out, its death."""

    STOP = "stop"
    DUMP = "dump"
    KILL = "kill"
    TIME_UP = "time up"
    DIED = "died"


class Act(StrEnum):
    """What the loop must do to the process."""

    ASK = "ask"
    DUMP = "dump"
    KILL = "kill"
    REPORT = "report"
    REAP = "reap"


@dataclass(frozen=True, slots=True)
class Step:
    state: Life
    act: Act | None


WITHIN_S: dict[Life, float] = {Life.DUMPING: DUMP_S, Life.KILLING: UNDYING_S}
"""How long a state may last; one that is not here has no limit, or one that the caller sets."""

TABLE: dict[tuple[Life, Cue], Step] = {
    (Life.RUNNING, Cue.STOP): Step(Life.STOPPING, Act.ASK),
    (Life.RUNNING, Cue.DUMP): Step(Life.DUMPING, Act.DUMP),
    (Life.RUNNING, Cue.KILL): Step(Life.KILLING, Act.KILL),
    (Life.RUNNING, Cue.DIED): Step(Life.GONE, Act.REAP),
    (Life.STOPPING, Cue.STOP): Step(Life.STOPPING, None),
    (Life.STOPPING, Cue.DUMP): Step(Life.DUMPING, Act.DUMP),
    (Life.STOPPING, Cue.KILL): Step(Life.KILLING, Act.KILL),
    (Life.STOPPING, Cue.TIME_UP): Step(Life.KILLING, Act.KILL),
    (Life.STOPPING, Cue.DIED): Step(Life.GONE, Act.REAP),
    (Life.DUMPING, Cue.STOP): Step(Life.DUMPING, None),
    (Life.DUMPING, Cue.DUMP): Step(Life.DUMPING, None),
    (Life.DUMPING, Cue.KILL): Step(Life.KILLING, Act.KILL),
    (Life.DUMPING, Cue.TIME_UP): Step(Life.KILLING, Act.KILL),
    (Life.DUMPING, Cue.DIED): Step(Life.GONE, Act.REAP),
    (Life.KILLING, Cue.STOP): Step(Life.KILLING, None),
    (Life.KILLING, Cue.DUMP): Step(Life.KILLING, None),
    (Life.KILLING, Cue.KILL): Step(Life.KILLING, None),
    (Life.KILLING, Cue.TIME_UP): Step(Life.UNDYING, Act.REPORT),
    (Life.KILLING, Cue.DIED): Step(Life.GONE, Act.REAP),
    (Life.UNDYING, Cue.STOP): Step(Life.UNDYING, None),
    (Life.UNDYING, Cue.DUMP): Step(Life.UNDYING, None),
    (Life.UNDYING, Cue.KILL): Step(Life.UNDYING, None),
    (Life.UNDYING, Cue.DIED): Step(Life.GONE, Act.REAP),
}


class LifecycleError(Exception):
    """A cue that the table has no answer for: a fault of the supervisor itself."""


def step(state: Life, cue: Cue, history: tuple[str, ...] = ()) -> Step:
    """The next state and what to do.

    Raises:
        LifecycleError: the pair is not in the table; the message holds the last transitions.
    """
    try:
        return TABLE[state, cue]
    except KeyError:
        raise LifecycleError(f"{cue} in state {state}; before: {', '.join(history[-5:])}") from None
