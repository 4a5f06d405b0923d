"""The ring of events: what happened to whom, when and why, for the run log and for `batchpod-debug events`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

RING = 2000


@dataclass(frozen=True, slots=True)
class Event:
    """`at` is wall time (seconds since the epoch), since events are published; `task` is the page's name or empty."""

    number: int
    at: float
    kind: str
    actor: str
    incarnation: int
    task: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Events:
    """Keeps the last 2,000 events and says each as one readable line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._ring: deque[Event] = deque(maxlen=RING)
        self._number = 0

    def note(
        self, kind: str, text: str, *, actor: str = "", incarnation: int = 0, task: str = "", quiet: bool = False
    ) -> None:
        """Add one event; unless `quiet`, one line says it too.

        `kind` is one word of a closed vocabulary: spawn, beat-late, dump, kill, exit, requeue, promote, blame, pause,
        memory, retire, command, late-message, slow-turn, stage.
        """
        self._number += 1
        self._ring.append(Event(self._number, time.time(), kind, actor, incarnation, task, text))
        if not quiet:
            who = f"{actor}#{incarnation} " if incarnation else f"{actor} " if actor else ""
            self._say(f"{who}{text}")

    def since(self, number: int = 0) -> list[Event]:
        """Events after `number`, oldest first."""
        return [e for e in self._ring if e.number > number]
