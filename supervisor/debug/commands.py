"""The commands that every supervisor answers in the same way: the reading ones, the following ones, and the probe's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from supervisor.debug import views
from supervisor.debug.server import Caller, Command, Following
from supervisor.debug.views import Json, Source


def reading(source: Source, refresh: Callable[[], None]) -> dict[str, Command]:
    """Commands over a live source; `refresh` publishes a new snapshot where the last one is no longer fresh."""

    def plain(view: views.Reading) -> Command:
        def command(arguments: Mapping[str, Any], _: Caller) -> Any:
            refresh()
            return view(source, arguments)

        return command

    def following(make: Callable[[Source, Mapping[str, Any]], Callable[[], Json | None]]) -> Command:
        def command(arguments: Mapping[str, Any], _: Caller) -> Following:
            refresh()
            return Following(make(source, arguments))

        return command

    return {
        **{name: plain(view) for name, view in views.READINGS.items()},
        "watch": following(lambda source, arguments: lambda: views.watch(source, arguments)),
        "events": following(new_events),
        "tail": following(new_lines),
    }


def new_events(source: Source, arguments: Mapping[str, Any]) -> Callable[[], Json | None]:
    """First the last events, then at each call those that came since; None for none."""
    seen: int | None = None

    def pull() -> Json | None:
        nonlocal seen
        first = seen is None
        found = views.events(source, arguments) if first else {"events": source.events(seen or 0)}
        newest = source.events()[-1:] if first else found["events"][-1:]
        seen = newest[0]["number"] if newest else seen or 0
        return found if first or found["events"] else None

    return pull


def new_lines(source: Source, arguments: Mapping[str, Any]) -> Callable[[], Json | None]:
    """First the last lines of an actor, then at each call those that came since; None for none."""
    seen: int | None = None

    def pull() -> Json | None:
        nonlocal seen
        if seen is None:
            found = views.tail(source, arguments)
            seen = source.tail(found["actor"])[1]
            return found
        name = views.actor_named(str(arguments["actor"]), source.actors(), views.SUPERVISOR)
        lines, count = source.tail(name)
        new, seen = count - seen if count >= seen else count, count
        return {"actor": name, "lines": lines[-new:]} if new else None

    return pull
