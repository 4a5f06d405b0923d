"""What the models themselves wrote down: when the GPU was in a batch, and when it was not. Pure but for the reading."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Batch:
    """One call of a model: monotonic seconds."""

    page: str
    start: float
    end: float
    pid: int


def read(path: Path) -> list[Batch]:
    """The batches of pages, by start (not the smoke test's)."""
    if not path.exists():
        return []
    lines = (json.loads(line) for line in path.read_text().splitlines())
    batches = [Batch(e["page"], e["start"], e["end"], e["pid"]) for e in lines if e["page"].isdigit()]
    return sorted(batches, key=lambda batch: batch.start)


def gaps(spans: Iterable[Span], after: float = float("-inf")) -> list[Span]:
    """Where no span is, between the first and the last; only what lies later than `after`."""
    found, end = [], None
    for span in sorted(spans):
        if end is not None and span[0] > end and span[0] > after:
            found.append((max(end, after), span[0]))
        end = span[1] if end is None else max(end, span[1])
    return found


def length_s(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def pages(batches: Iterable[Batch]) -> dict[str, Span]:
    """Each page from its first batch to its last."""
    found: dict[str, Span] = {}
    for batch in batches:
        start, end = found.get(batch.page, (batch.start, batch.end))
        found[batch.page] = min(start, batch.start), max(end, batch.end)
    return found


def idle(batches: list[Batch]) -> list[Span]:
    """When the GPU was in no batch, after the first page."""
    first = min(end for _, end in pages(batches).values())
    return gaps([(b.start, b.end) for b in batches], first)


def without_a_page(batches: list[Batch]) -> list[Span]:
    """When the GPU was in no batch and had no page in hand."""
    return gaps(pages(batches).values())
