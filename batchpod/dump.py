"""The dump: all that the debug commands show, in one JSON of at most 1 MiB, for a ticket or for a pod that is gone.

Owns what is left out where that is not enough: finished pages first, then old events and old lines of output.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

from actors.redact import for_log
from batchpod.ledger import FINISHED, State
from supervisor.debug.protocol import PROTOCOL
from supervisor.debug.views import SUPERVISOR

if TYPE_CHECKING:
    from batchpod.inspection import Inspection

Json = dict[str, Any]
DUMP_BYTES = 1 << 20
STACK_CHARACTERS = 20_000
LINE_CHARACTERS = 400
EVENTS_SHARE, TAILS_SHARE = 0.25, 0.25


def encoded(inspection: Inspection, snapshot: Json) -> bytes:
    return orjson.dumps(document(inspection, snapshot))


def document(inspection: Inspection, snapshot: Json) -> Json:
    """A dump with the run, the actors and the queues as they are in `snapshot`, everything else as it is now."""
    names = [row["actor"] for row in snapshot["actors"]]
    made: Json = {
        "protocol": PROTOCOL,
        "written_at": time.time(),
        **snapshot,
        "arena": inspection.arena(),
        "config": inspection.config(),
        "exits": inspection.exits(),
        "limits": {name: inspection.limits(name) for name in names},
        "stacks": {name: _clipped(stack) for name, stack in inspection.last_stacks.items()},
    }
    made = _redacted(made)
    left = DUMP_BYTES - len(orjson.dumps(made)) - 1024
    events, left_events = _fitting(reversed(inspection.events()), int(left * EVENTS_SHARE))
    tails, left_lines, left_tail = {}, 0, int(left * TAILS_SHARE) // (len(names) + 1)
    for name in [*names, SUPERVISOR]:
        lines = [line[:LINE_CHARACTERS] for line in inspection.tail(name)[0]]
        kept, lost = _fitting(reversed(lines), left_tail)
        tails[name] = kept[::-1]
        left_lines += lost
    made |= {"events": events[::-1], "tails": tails}
    pages, left_pages = _fitting(_pages(inspection), DUMP_BYTES - len(orjson.dumps(made)) - 1024)
    left_out = {"events": left_events, "lines": left_lines, "pages": left_pages}
    return made | {"pages": pages, "left_out": left_out}


def _pages(inspection: Inspection) -> Iterable[Json]:
    """Every page with its story: those on their way, then failed and deferred ones, then the others, newest first."""
    moving = [state for state in State if state not in FINISHED and state is not State.WAITING]
    for states in (moving, [State.FAILED, State.DEFERRED], [State.WAITING], [State.OK, State.SKIPPED]):
        yield from inspection.stories(states)


def _fitting(items: Iterable[Any], budget_bytes: int) -> tuple[list[orjson.Fragment], int]:
    """The first items that fit into the budget, encoded already (as objects they would take ten times the room), and
    how many others there are."""
    kept, lost = [], 0
    for item in items:
        encoded_item = orjson.dumps(item)
        if lost or len(encoded_item) >= budget_bytes:
            lost += 1
            continue
        budget_bytes -= len(encoded_item) + 1
        kept.append(orjson.Fragment(encoded_item))
    return kept, lost


def _clipped(stack: Json) -> Json:
    return stack | {"stacks": stack["stacks"][:STACK_CHARACTERS]}


def _redacted(value: Any) -> Any:
    """`value` with every text in it redacted."""
    if isinstance(value, str):
        return for_log(value)
    if isinstance(value, dict):
        return {name: _redacted(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(part) for part in value]
    return value
