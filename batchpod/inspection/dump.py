"""The dump: all that the debug commands show, in one JSON of at most 1 MiB, for a ticket or for a pod that is gone.

Owns what is left out where that is not enough: finished pages first, then old events and old lines of output.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from actors.redact import for_log
from batchpod.flow.ledger import FINISHED, State
from supervisor.debug.protocol import PROTOCOL
from supervisor.debug.views import SUPERVISOR

if TYPE_CHECKING:
    from batchpod.inspection.publisher import Inspection

Json = dict[str, Any]
DUMP_BYTES = 1 << 20
STACK_CHARACTERS = 20_000
LINE_CHARACTERS = 400
PAGES_AT_ONCE = 300
EVENTS_SHARE, TAILS_SHARE = 0.25, 0.25


def encoded(inspection: Inspection, snapshot: Json) -> bytes:
    """The whole dump at once; for the end of a run, which may wait for it."""
    return orjson.dumps(next(made for made in building(inspection, snapshot) if made is not None))


def building(inspection: Inspection, snapshot: Json) -> Iterator[Json | None]:
    """A dump with the run, the actors and the queues as they are in `snapshot`, everything else as it is now.

    Gives None after every few milliseconds of work (3,000 pages take some 100 ms), and at last the dump.
    """
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
    every = inspection.events()
    events, _ = _fitting(reversed(every), int(left * EVENTS_SHARE))
    tails, left_lines, left_tail = {}, 0, int(left * TAILS_SHARE) // (len(names) + 1)
    for name in [*names, SUPERVISOR]:
        lines = [line[:LINE_CHARACTERS] for line in inspection.tail(name)[0]]
        kept, _ = _fitting(reversed(lines), left_tail)
        tails[name] = kept[::-1]
        left_lines += len(lines) - len(kept)
    made |= {"events": events[::-1], "tails": tails}
    total, left = made["run"]["total"], DUMP_BYTES - len(orjson.dumps(made)) - 1024
    pages: list[orjson.Fragment] = []
    rows = _pages(inspection)
    while slice_ := list(islice(rows, PAGES_AT_ONCE)):
        yield None
        kept, left = _fitting(slice_, left)
        pages += kept
        if len(kept) < len(slice_):
            break
    left_out = {"events": len(every) - len(events), "lines": left_lines, "pages": total - len(pages)}
    yield made | {"pages": pages, "left_out": left_out}


def _pages(inspection: Inspection) -> Iterator[Json]:
    """Every page with its story: those on their way, then failed and deferred ones, then the others, newest first."""
    moving = [state for state in State if state not in FINISHED and state is not State.WAITING]
    for states in (moving, [State.FAILED, State.DEFERRED], [State.WAITING], [State.OK, State.SKIPPED]):
        yield from inspection.stories(states)


def _fitting(items: Iterable[Any], budget_bytes: int) -> tuple[list[orjson.Fragment], int]:
    """The first items that fit into the budget, encoded already (as objects they would take ten times the room), and
    what is left of the budget."""
    kept: list[orjson.Fragment] = []
    for item in items:
        encoded_item = orjson.dumps(item)
        if len(encoded_item) >= budget_bytes:
            break
        budget_bytes -= len(encoded_item) + 1
        kept.append(orjson.Fragment(encoded_item))
    return kept, budget_bytes


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
