"""A model of the table of liveness and blame, to hold a disturbed run against.

Reads from the run log what happened to each process (its start, whether its models were loaded, its end, and which pages
were in it), decides by the table who should have paid, and says where the run decided otherwise. Knows none of the code
that decides.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

GPU_STARTS, SERVICE_DEATHS, DEATHS = 3, 5, 2

_SAID = re.compile(r"^\d\d:\d\d:\d\d ([a-z]+(?:-\d+)?)(?:#\d+)? (.*)$")
_START = re.compile(r"started, pid \d+|the standby \(pid \d+\) takes over")
_EXIT = re.compile(r"((?:killed by|ended with) .*?) after [\d.]+ s(?: \((.*)\))?$")
_AGAIN = re.compile(r"page (\d+) is run again: (.*)$")
_DECODED = re.compile(r"page (\d+) was being decoded, it is decoded again alone$")
_BLAME = re.compile(r"page (\d+) is to blame: (.*)$")
_LOADED = re.compile(r"^(gpu-\d) loaded ")
_CLOSING = ("all pages are done", "the run is ending", "the run is done")


@dataclass
class Life:
    """One incarnation: what the log says of it, from its start to its successor's."""

    actor: str
    loaded: bool = False
    end_at: int | None = None
    asked: str = ""
    alone: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    blamed: dict[str, str] = field(default_factory=dict)
    decoding: set[str] = field(default_factory=set)

    @property
    def in_flight(self) -> set[str]:
        return self.alone | self.again | set(self.blamed)


@dataclass
class Expected:
    """What the table says of a run: the pages that fail, and what ends it; `wrong` is where the run differs."""

    workers: int
    failed: dict[str, str] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    ended_by: str | None = None
    wrong: list[str] = field(default_factory=list)
    requeued: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    _deaths: Counter[str] = field(default_factory=Counter)
    _decoded_alone: dict[str, int] = field(default_factory=dict)
    _starts: Counter[str] = field(default_factory=Counter)
    _services: Counter[str] = field(default_factory=Counter)

    def gpu_ended(self, life: Life) -> None:
        self.requeued.update(life.alone | life.again)
        self.failed |= life.blamed
        if life.loaded:
            self.restarts += 1
            self._starts[life.actor] = 0
            if not (self._hang_is_judged(life) if "made no progress" in life.asked else self._death_is_judged(life)):
                self.wrong.append(f"{life}, deaths alone so far {dict(self._deaths)}")
            return
        self._starts[life.actor] += 1
        if life.in_flight:
            self.wrong.append(f"it was not loaded and had pages: {life}")
        if self._starts[life.actor] >= GPU_STARTS:
            self.retired.add(life.actor)
        if len(self.retired) == self.workers:
            self.ended_by = f"{life.actor} could not be brought up in {GPU_STARTS} starts in a row"

    def _hang_is_judged(self, life: Life) -> bool:
        """Alone: that page. In company: one page and nobody else is charged, or nobody yet and each is run alone. One
        that was let go of in the last moment is charged nothing."""
        stuck, pages = life.asked.split()[1], life.in_flight
        if pages <= {stuck}:
            return set(life.blamed) == pages
        if life.blamed:
            return len(life.blamed) == 1 and not life.alone
        return len(life.alone) > 1 or stuck not in pages

    def _death_is_judged(self, life: Life) -> bool:
        """One page in flight: once more alone, the second time it fails. Several: each alone."""
        if len(life.in_flight) != 1:
            return life.alone == life.in_flight
        (page,) = life.in_flight
        self._deaths[page] += 1
        return (page in life.blamed) is (self._deaths[page] >= DEATHS) and page not in life.again

    def service_ended(self, life: Life) -> None:
        """Each death counts, unless pages were being decoded: those are decoded alone, and fail the second time."""
        suspects = life.decoding | set(life.blamed)
        self.failed |= life.blamed
        for page in suspects:
            self._decoded_alone[page] = self._decoded_alone.get(page, -1) + 1
            if (page in life.blamed) is not (self._decoded_alone[page] >= DEATHS):
                self.wrong.append(f"{life}, ended the decoder alone {self._decoded_alone[page]} times")
        self._services[life.actor] += not suspects
        if self._services[life.actor] > SERVICE_DEATHS:
            self.ended_by = f"the {life.actor} died more than {SERVICE_DEATHS} times"


def expected(log: str, workers: int) -> Expected:
    """Hold the log of a run with so many gpu actors against the table."""
    table = Expected(workers)
    ended = sorted((life for life in lives(log) if life.end_at is not None), key=lambda life: life.end_at or 0)
    for life in ended:
        if table.ended_by or life.asked.startswith(_CLOSING) or life.actor == "standby":
            continue
        if life.actor.startswith("gpu"):
            table.gpu_ended(life)
        else:
            table.service_ended(life)
    return table


def lives(log: str) -> list[Life]:
    """Every incarnation, in the order of their starts."""
    found: list[Life] = []
    now: dict[str, Life] = {}
    for at, line in enumerate(log.splitlines()):
        if loaded := _LOADED.match(line):
            now[loaded[1]].loaded = True
        if (said := _SAID.match(line)) is None:
            continue
        actor, text = said.groups()
        if _START.match(text):
            now[actor] = Life(actor)
            found.append(now[actor])
        elif (life := now.get(actor)) is None:
            continue
        elif exit_ := _EXIT.match(text):
            life.end_at, life.asked = at, exit_[2] or ""
        elif again := _AGAIN.match(text):
            (life.alone if "alone" in again[2] else life.again).add(again[1])
        elif decoded := _DECODED.match(text):
            life.decoding.add(decoded[1])
        elif blamed := _BLAME.match(text):
            life.blamed[blamed[1]] = blamed[2]
    return found
