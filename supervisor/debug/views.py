"""The reading commands: each a view of one source, which is the live run or a dump of one.

A source gives plain JSON values; what a view gives is the same whichever it reads, so every command that is answered
over the socket is answered from a file too. Pure: no command here changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from supervisor.debug.protocol import Kind, Refused

Json = dict[str, Any]
SUPERVISOR = "supervisor"
"""The supervising process itself, where lines are asked for."""
SHOWN_EVENTS = SHOWN_LINES = 20
SHOWN_EXITS = 5


class Source(Protocol):
    """What is known of a run.

    `run` and `actors` are the last published snapshot. A page is `{"page", "state", "age_s", "by", "reason", …}` with
    its `story`, a list of `[wall time, state, why, by]`.
    """

    def run(self) -> Json: ...
    def actors(self) -> list[Json]: ...
    def queues(self) -> list[Json]: ...
    def arena(self) -> Json: ...
    def config(self) -> list[Json]: ...
    def events(self, since: int = 0) -> list[Json]: ...
    def exits(self) -> list[Json]: ...
    def tail(self, actor: str) -> tuple[list[str], int]:
        """The last lines of an actor's output, and how many there have been in all."""

    def limits(self, actor: str) -> Json: ...
    def pages(self, states: frozenset[str] | None) -> Iterable[Json]:
        """Pages in one of `states`, without their stories; None means those that are on their way."""

    def page(self, name: str) -> Json | None: ...


Reading = Callable[[Source, Mapping[str, Any]], Any]


def status(source: Source, arguments: Mapping[str, Any]) -> Json:
    actors = source.actors()
    if name := _text(arguments, "actor"):
        chosen = actor_named(name, actors)
        actors = [row for row in actors if row["actor"] == chosen]
    return {"run": source.run(), "actors": actors}


def watch(source: Source, arguments: Mapping[str, Any]) -> Json:
    return {"run": source.run(), "actors": source.actors(), "events": source.events()[-SHOWN_EVENTS:]}


def show(source: Source, arguments: Mapping[str, Any]) -> Json:
    actors = source.actors()
    name = actor_named(_text(arguments, "actor"), actors)
    return {
        "actor": next(row for row in actors if row["actor"] == name),
        "limits": source.limits(name),
        "transitions": [e for e in source.events() if e["actor"] == name][-SHOWN_EVENTS:],
        "exits": [e for e in source.exits() if e["actor"] == name][-SHOWN_EXITS:],
    }


def pages(source: Source, arguments: Mapping[str, Any]) -> Json:
    state, older_s = _text(arguments, "state"), _number(arguments, "older", 0)
    counts = source.run()["counts"]
    if state and state not in counts:
        raise Refused(Kind.USAGE, f"there is no state {state!r}; there are {', '.join(counts)}")
    wanted = frozenset({state}) if state else None
    return {"pages": [row for row in source.pages(wanted) if row["age_s"] >= older_s], "counts": counts}


def page(source: Source, arguments: Mapping[str, Any]) -> Json:
    name = page_named(_text(arguments, "page"))
    found = source.page(name)
    if found is None:
        counts = source.run()["counts"]
        raise Refused(Kind.USAGE, f"nothing is known of page {name}: the volume has {sum(counts.values())} pages")
    turns = found["story"]
    ends = [turn[0] for turn in turns[1:]] + [None] * bool(turns)
    story = [
        {"at": at, "state": state, "why": why, "by": by, "lasted_s": None if end is None else round(end - at, 3)}
        for (at, state, why, by), end in zip(turns, ends, strict=True)
    ]
    return {**found, "story": story}


def arena(source: Source, arguments: Mapping[str, Any]) -> Json:
    return source.arena()


def queues(source: Source, arguments: Mapping[str, Any]) -> Json:
    return {"queues": source.queues()}


def events(source: Source, arguments: Mapping[str, Any]) -> Json:
    return {"events": _last(source.events(), arguments)}


def tail(source: Source, arguments: Mapping[str, Any]) -> Json:
    name = actor_named(_text(arguments, "actor"), source.actors(), SUPERVISOR)
    return {"actor": name, "lines": _last(source.tail(name)[0], arguments)}


def _last(found: list[Any], arguments: Mapping[str, Any]) -> list[Any]:
    """As many of the last ones as were asked for."""
    count = int(_number(arguments, "lines", SHOWN_LINES))
    return found[-count:] if count else []


def exits(source: Source, arguments: Mapping[str, Any]) -> Json:
    return {"exits": source.exits()}


def config(source: Source, arguments: Mapping[str, Any]) -> Json:
    return {"settings": source.config()}


READINGS: dict[str, Reading] = {
    view.__name__: view for view in (status, watch, show, pages, page, arena, queues, events, tail, exits, config)
}


def actor_named(name: str, actors: list[Json], *more: str) -> str:
    """The actor that a person means by `name`: its name, or a beginning that only one has (`gpu` for `gpu-0`).

    Raises:
        Refused: none or several.
    """
    names: list[str] = [*(row["actor"] for row in actors), *more]
    if name in names:
        return name
    meant = [known for known in names if name and known.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    problem = f"{name!r} may be {' or '.join(meant)}" if meant else f"there is no actor {name!r}"
    raise Refused(Kind.USAGE, f"{problem}; there are {', '.join(names)}")


def page_named(name: str) -> str:
    """The published name of the page that a person means: `412` is `0412`.

    Raises:
        Refused: it is no page number.
    """
    if not (name.isascii() and name.isdigit() and len(name) <= 9):
        raise Refused(Kind.USAGE, f"{name!r} is not a page: expected its number, such as 412 or 0412")
    return f"{int(name):04d}"


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused(Kind.USAGE, f"{name} is not a text")
    return value[:200]


def _number(arguments: Mapping[str, Any], name: str, default: float) -> float:
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise Refused(Kind.USAGE, f"{name} is not a number from 0 on")
    return value
