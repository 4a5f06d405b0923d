"""A dump in place of a live run: a source that every reading command accepts (`--from FILE`). The client's side."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from supervisor.debug.client import Reply
from supervisor.debug.protocol import PROTOCOL, SKEW, Kind, Refused
from supervisor.debug.views import READINGS, Json, actor_named

MAX_BYTES = 64 << 20
"""A dump has at most 1 MiB; what is far larger is not read to find that it is none."""


class Unreadable(Exception):
    """The file cannot be read as a dump; the text says why."""


def read(path: str) -> Dumped:
    """The dump in a file.

    Raises:
        Unreadable: there is none.
    """
    try:
        with open(path, "rb") as f:
            content = f.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
        return Dumped(orjson.loads(content))
    except OSError as e:
        raise Unreadable(f"{path} cannot be read: {e.strerror or e}") from e
    except ValueError as e:
        raise Unreadable(f"{path} is not a dump for this program: {e}") from e


def answer(dumped: Dumped, command: str, arguments: Mapping[str, Any]) -> Reply:
    """What a reading command gives for a dump; its age is that of the dump's snapshot by now.

    Raises:
        Refused: it says no.
        LookupError, TypeError, ValueError, AttributeError: something in the dump is not as it should be.
    """
    age_s = max(0.0, time.time() - float(dumped.run()["at"]))
    if command != "stack":
        return Reply(READINGS[command](dumped, arguments), age_s)
    name = actor_named(arguments["actor"], dumped.actors())
    if (found := dumped.stack(name)) is None:
        raise Refused(Kind.NOT_RUNNING, f"this dump holds no stacks of {name}")
    return Reply(found, age_s)


class Dumped:
    """A source that was written down by `dump`.

    Raises:
        ValueError: it is no dump of this kind.
    """

    def __init__(self, dump: Any) -> None:
        wanted = ("run", "actors", "queues", "arena", "config", "events", "exits", "tails", "limits", "pages")
        if not isinstance(dump, dict) or any(name not in dump for name in wanted):
            raise ValueError("neither `batchpod-debug dump` nor a failed run has written it")
        if dump.get("protocol") != PROTOCOL:
            raise ValueError(f"it is of protocol {str(dump.get('protocol'))[:20]}, not of {PROTOCOL}: {SKEW}")
        self.whole: Json = dump

    def run(self) -> Json:
        return dict(self.whole["run"])

    def actors(self) -> list[Json]:
        return list(self.whole["actors"])

    def queues(self) -> list[Json]:
        return list(self.whole["queues"])

    def arena(self) -> Json:
        return dict(self.whole["arena"])

    def config(self) -> list[Json]:
        return list(self.whole["config"])

    def events(self, since: int = 0) -> list[Json]:
        return [e for e in self.whole["events"] if e["number"] > since]

    def exits(self) -> list[Json]:
        return list(self.whole["exits"])

    def tail(self, actor: str) -> tuple[list[str], int]:
        lines = list(self.whole["tails"].get(actor, []))
        return lines, len(lines)

    def limits(self, actor: str) -> Json:
        return dict(self.whole["limits"].get(actor, {}))

    def pages(self, states: frozenset[str] | None) -> Iterable[Json]:
        moving = frozenset(self.whole["run"]["moving"])
        rows = [row for row in self.whole["pages"] if row["state"] in (states or moving)]
        return sorted(rows, key=lambda row: str(row["page"]).zfill(9))

    def page(self, name: str) -> Json | None:
        """One page.

        Raises:
            Refused: its story was left out to keep the dump small.
        """
        found: Json | None = next((row for row in self.whole["pages"] if row["page"] == name), None)
        left_out = self.whole.get("left_out", {}).get("pages", 0)
        if found is None and left_out and 1 <= int(name) <= sum(self.whole["run"]["counts"].values()):
            text = f"this dump has left {left_out} finished pages out to stay small, and page {name} is one of them"
            raise Refused(Kind.USAGE, text)
        return found

    def stack(self, actor: str) -> Json | None:
        """The last stack dump of an actor, if there was one."""
        found: Json | None = self.whole.get("stacks", {}).get(actor)
        return found
