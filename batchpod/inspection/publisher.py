"""What the debug socket shows of a run: what its commands are answered from, and the server that answers them.

Gives plain JSON values from the run's own state. The snapshot that is published once a second is snapshot.py's, what
changes the run orders.py's, what is written down for later dump.py's.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.messages import page_name
from actors.redact import for_log
from batchpod.flow.ledger import Page, State
from batchpod.gpus.standby import STANDBY
from batchpod.inspection import dump, orders
from batchpod.inspection.snapshot import MOVING, Snapshots
from batchpod.services import BEAT_S
from supervisor.debug import commands
from supervisor.debug.address import socket_path
from supervisor.debug.protocol import Kind, Refused
from supervisor.debug.server import Caller, Command, Later, Server
from supervisor.debug.stacks import Stacks
from supervisor.debug.views import SUPERVISOR, actor_named
from supervisor.loop import INBOX_STUCK_S
from supervisor.marks import Mark
from supervisor.output import TAIL_LINES
from supervisor.process import Exit, Incarnation

if TYPE_CHECKING:
    from batchpod.run import Run

Json = dict[str, Any]
FRESH_S = 0.2
EXITS = 100

log = logging.getLogger(__name__)


class Inspection:
    """A `supervisor.debug.views.Source` over a live run, and its server."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._server: Server | None = None
        self._stacks = Stacks(run.loop)
        self._snapshots = Snapshots(run)
        self._exits: deque[Json] = deque(maxlen=EXITS)
        self._before: dict[str, tuple[deque[str], int]] = {}
        self._published_at = 0.0
        self._published: Json = {}
        self._failure = ""
        self._given_up: set[str] = set()
        self._at_failure: Json = {}
        self.last_stacks: dict[str, Json] = {}

    # ------------------------------------------------------------------------------------------------- the server

    @contextmanager
    def served(self) -> Iterator[None]:
        """The socket is there while this lasts; a run that cannot have one goes on without."""
        self.publish()
        try:
            path = socket_path(self._run.workdir.root)
            self._server = Server(self._run.loop, path, self._commands(), self._age_s)
        except OSError as e:
            log.warning("there is no debug socket, the run goes on without (a liveness probe will fail): %s", e)
        try:
            yield
        finally:
            if self._server is not None:
                self._server.close()

    def tend(self) -> None:
        """Once a turn."""
        if self._server is not None:
            self._server.tend()

    @property
    def soonest_s(self) -> float:
        """How soon the next turn should come; infinite where nothing hangs on it."""
        return self._server.soonest_s if self._server is not None else math.inf

    def _commands(self) -> dict[str, Command]:
        return {
            **commands.reading(self, self._refresh),
            "ping": self._ping,
            "stack": self._stack,
            "dump": self._dump,
            **orders.orders(self._run),
        }

    # ----------------------------------------------------------------------------------------------- publishing

    def publish(self) -> None:
        """Take the snapshot that reads are answered from, and send it to those who watch."""
        with self._best_effort("the debug snapshot is not renewed"):
            self._publish()
        if self._server is not None:
            self._server.push()

    @contextmanager
    def _best_effort(self, given_up: str) -> Iterator[None]:
        """A fault in what only shows the run must not end it: it is said once, with where it is."""
        try:
            yield
        except Exception:
            if given_up not in self._given_up:
                log.exception("%s, the run goes on", given_up)
            self._given_up.add(given_up)

    def _publish(self) -> None:
        self._published = self._snapshots.take(self._exits, self._failure)
        self._published_at = self._run.loop.clock.now()

    def _refresh(self) -> None:
        if self._age_s() >= FRESH_S:
            self.publish()

    def _age_s(self) -> float:
        return self._run.loop.clock.now() - self._published_at

    # ---------------------------------------------------------------------------------------------- what has ended

    def note_exit(self, child: Incarnation, exit_: Exit) -> None:
        """A process of the run is gone: keep how, and its last lines."""
        with self._best_effort("an exit record is not kept"):
            self._note_exit(child, exit_)

    def _note_exit(self, child: Incarnation, exit_: Exit) -> None:
        pages = [page_name(mark.task) for mark in exit_.tasks if mark.task > 0]
        self._exits.append(
            {
                "at": time.time(),
                "actor": child.name,
                "incarnation": exit_.incarnation,
                "pid": exit_.pid,
                "how": exit_.text,
                "signal": exit_.signal_name,
                "code": exit_.code,
                "asked": shown(exit_.asked),
                "pages": pages,
                "uptime_s": round(exit_.uptime_s, 1),
                "rss_bytes": self._snapshots.usage.rss_bytes.get(exit_.pid),
            }
        )
        lines, count = self._before.get(child.name, (deque(maxlen=TAIL_LINES), 0))
        lines.extend(child.output.tail)
        self._before[child.name] = lines, count + child.output.seen
        if exit_.stacks:
            self._keep_stacks(child, exit_.stacks, exit_.tasks)
        self._stacks.forget(child)

    def fails(self, error: str) -> None:
        """The run has failed: what is published now, before its actors are stopped, is what a dump shows of them."""
        self._failure = shown(error)
        self.publish()
        self._at_failure = self._published

    def write_dump(self) -> str | None:
        """Write the dump of a failed run (at most 1 MiB, redacted) into the workdir; its path, None if it cannot be."""
        path = self._run.workdir.dump
        with self._best_effort("no debug dump is left"):
            body = dump.encoded(self, self._at_failure)
            try:
                Path(path).write_bytes(body)
            except OSError as e:
                log.warning("no debug dump is left: %s", e)
            else:
                return path
        return None

    # ----------------------------------------------------------------------------------------------------- a Source

    def run(self) -> Json:
        standing: Json = self._published["run"]
        return standing

    def actors(self) -> list[Json]:
        rows: list[Json] = self._published["actors"]
        return rows

    def queues(self) -> list[Json]:
        rows: list[Json] = self._published["queues"]
        return rows

    def arena(self) -> Json:
        arena, ledger, clock = self._run.stream.arena, self._run.stream.ledger, self._run.loop.clock
        blocks = [
            {
                "page": page_name(lent.key),
                "state": str(ledger[lent.key].state),
                "holder": lent.holder,
                "bytes": lent.block.length,
                "offset": lent.block.offset,
                "age_s": round(clock.age(lent.since_at), 1),
            }
            for lent in arena.lent
        ]
        totals = {"size_bytes": arena.size_bytes, "used_bytes": arena.used_bytes, "waiting": arena.waiting}
        return totals | {"blocks": blocks}

    def config(self) -> list[Json]:
        return [{"name": s.name, "value": s.value, "source": s.source} for s in self._run.config.settings]

    def events(self, since: int = 0) -> list[Json]:
        return [e.as_dict() | {"text": shown(e.text)} for e in self._run.loop.events.since(since)]

    def exits(self) -> list[Json]:
        return list(self._exits)

    def tail(self, actor: str) -> tuple[list[str], int]:
        if actor == SUPERVISOR:
            lines, count = list(self._run.loop.output.own), self._run.loop.output.own_seen
        else:
            before, count = self._before.get(actor, (deque[str](), 0))
            child = self.child(actor)
            lines = [*before, *(child.output.tail if child else ())][-TAIL_LINES:]
            count += child.output.seen if child else 0
        return [shown(line) for line in lines], count

    def limits(self, actor: str) -> Json:
        config = self._run.config
        common = {"inbox stuck": INBOX_STUCK_S}
        if actor.startswith("gpu") or actor == STANDBY:
            own: Json = {"imports": config.gpu_start_s, "model load": config.gpu_load_s}
            if actor != STANDBY:
                own |= {"page without progress": config.page_timeout_s, "pages at once": config.gpu_pages}
            return own | common
        service = self._run.fetcher if actor == self._run.fetcher.name else self._run.uploader
        limit = service.limit
        restarts = {"restarts": f"{limit.count} in {limit.window_s:g} s"}
        own = {"dispatch loop silent": BEAT_S, **restarts}
        if service is self._run.fetcher:
            own |= {
                "one download": config.download_deadline_s,
                "downloads at once": config.download_concurrency,
                "pages ahead": self._run.stream.lookahead_pages,
                "bytes ahead": config.lookahead_bytes,
            }
        else:
            own |= {"uploads at once": config.upload_concurrency, "backlog bytes": config.upload_backlog_bytes}
        return own | common

    def pages(self, states: frozenset[str] | None) -> Iterable[Json]:
        wanted = MOVING if states is None else tuple(State(state) for state in states)
        marks = self._marks()
        numbers = sorted(self._run.stream.ledger.numbers(*wanted))
        return [self.page_row(self._run.stream.ledger[number], marks) for number in numbers]

    def page(self, name: str) -> Json | None:
        page = self._run.stream.ledger.pages.get(int(name))
        return self.page_row(page, self._marks()) | {"story": story(page)} if page else None

    def stories(self, states: Iterable[State]) -> Iterator[Json]:
        """Pages in one of `states` with their stories, those that entered it last first."""
        ledger, marks = self._run.stream.ledger, self._marks()
        for number in reversed(ledger.numbers(*states)):
            yield self.page_row(ledger[number], marks) | {"story": story(ledger[number])}

    def page_row(self, page: Page, marks: Mapping[int, Json]) -> Json:
        """One page without its story; only what is known."""
        row: Json = {"page": page.name, "state": str(page.state)}
        row["age_s"] = round(self._run.loop.clock.age(page.since_at), 3)
        known = {
            "by": page.holder,
            "reason": shown(page.reason),
            "width": page.width,
            "height": page.height,
            "held_bytes": page.held_bytes,
            "exported_bytes": page.exported_bytes,
            "lines": page.lines,
            "fetch_s": page.fetch_s,
            "decode_s": page.decode_s,
            "transcribe_s": page.transcribe_s,
            "upload_s": page.upload_s,
        }
        row |= {name: value for name, value in known.items() if value}
        return row | marks.get(page.number, {})

    def _marks(self) -> dict[int, Json]:
        """Where each page stands that an actor has in hand."""
        clock = self._run.loop.clock
        return {
            mark.task: {
                "doing": ("" if mark.inside else "waits: ") + f"{mark.step} {mark.detail}".strip(),
                "quiet_s": round(clock.age(mark.at), 1),
            }
            for child in self._run.loop.children
            for mark in child.marks.tasks()
        }

    # ---------------------------------------------------------------------------------------------- other commands

    def child(self, actor: str) -> Incarnation | None:
        """The live process of an actor."""
        return next((child for child in self._run.loop.children if child.name == actor), None)

    def _ping(self, _: Mapping[str, Any], __: Caller) -> Json:
        loop = self._run.loop
        return {"volume": self._run.config.volume_ref, "slowest_turn_s": round(loop.slowest_turn_s, 4)}

    def _stack(self, arguments: Mapping[str, Any], _: Caller) -> Later:
        self._refresh()
        name = actor_named(str(arguments.get("actor", "")), self.actors())
        child = self.child(name)
        if child is None:
            raise Refused(Kind.NOT_RUNNING, f"{name} has no process now (batchpod-debug exits tells why)")
        self._stacks.ask(child)
        return Later(lambda: self._stacks_of(child))

    def _stacks_of(self, child: Incarnation) -> Json | None:
        text = self._stacks.text(child)
        return None if text is None else self._keep_stacks(child, text, child.marks.tasks())

    def _keep_stacks(self, child: Incarnation, text: str, marks: Sequence[Mark]) -> Json:
        clock = self._run.loop.clock
        places = [
            {
                "page": page_name(mark.task) if mark.task > 0 else "",
                "step": mark.step,
                "detail": mark.detail,
                "inside": mark.inside,
                "quiet_s": round(clock.age(mark.at), 1),
                "thread": f"0x{mark.thread:016x}",
            }
            for mark in sorted(marks, key=lambda mark: (not mark.inside, mark.at))
        ]
        kept = {"actor": child.name, "incarnation": child.number, "pid": child.pid, "at": time.time()}
        self.last_stacks[child.name] = kept | {"places": places, "stacks": shown(text)}
        return self.last_stacks[child.name]

    def _dump(self, _: Mapping[str, Any], __: Caller) -> Later:
        """Everything, with the stacks of every process that can give them."""
        self._refresh()
        asked = []
        for child in self._run.loop.children:
            try:
                self._stacks.ask(child)
            except Refused:
                continue  # Just started or being ended: the dump says so by its state.
            asked.append(child)

        def steps() -> Iterator[Json | None]:
            for child in asked:
                while child in self._run.loop.children and self._stacks_of(child) is None:
                    yield None
            yield from dump.building(self, self._published)

        made = steps()
        return Later(lambda: next(made))


def story(page: Page) -> list[list[Any]]:
    """A page's transitions: `[wall time, state, why, by]` each."""
    return [[turn.at, str(turn.state), shown(turn.why), turn.by] for turn in page.story]


def shown(text: str) -> str:
    """`text` as people may see it, and as JSON can hold it (a path may be bytes that are no text); most of it holds
    nothing that could be a URL or a credential."""
    text = text.encode("utf-8", "replace").decode()
    return for_log(text) if "/" in text or "=" in text else text
