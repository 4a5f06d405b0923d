"""What the uploader knows of its volume, read from the files that messages name.

Owns the shape of `pages.json` (the fetcher's), `done.json` (its own) and `outcomes.json` (the supervising process's);
does not own what is published of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Page:
    """One canvas. `url` is what is asked for first, with its credentials; `digest` its identity without them;
    `error` why it has no image; `body` the source's painting body."""

    number: int
    url: str
    digest: str | None
    canvas_id: str
    label: Any
    body: Any
    error: str | None


@dataclass(frozen=True, slots=True)
class Volume:
    """`source` is the manifest's URL with its credentials, None for a list of images. Page n is `pages[n - 1]`."""

    source: str | None
    label: Any
    pages: tuple[Page, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A stored page that needs no work: its pixel size as processed, and its entry for `results`."""

    size: Size | None
    entry: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """`pages` maps a page's number to its outcome, `run` holds the whole run's numbers."""

    pages: dict[int, dict[str, Any]]
    run: dict[str, Any] = field(default_factory=dict)


def read_volume(path: str) -> Volume:
    raw = _load(path)
    pages = tuple(
        Page(
            number,
            page["url"] or "",
            page.get("digest"),
            page.get("canvas_id") or "",
            page.get("label"),
            page.get("body"),
            page.get("error"),
        )
        for number, page in enumerate(raw["pages"], 1)
    )
    return Volume(raw.get("source"), raw.get("label"), pages)


def read_outcomes(path: str) -> Outcomes:
    raw = _load(path)
    return Outcomes({int(number): outcome for number, outcome in raw["pages"].items()}, raw.get("run") or {})


def read_done(path: str) -> dict[int, Done]:
    """By page number; empty where nothing was listed yet."""
    try:
        raw = _load(path)
    except FileNotFoundError:
        return {}
    return {
        int(number): Done(as_size(page.get("width"), page.get("height")), page["entry"])
        for number, page in raw["done"].items()
    }


def write_done(path: str, done: dict[int, Done], previous: bool) -> None:
    """`previous`: whether an earlier run's manifest.json was there."""
    pages = {
        str(number): {
            "width": page.size[0] if page.size else None,
            "height": page.size[1] if page.size else None,
            "entry": page.entry,
        }
        for number, page in done.items()
    }
    Path(path).write_bytes(orjson.dumps({"done": pages, "previous": previous}))


def as_size(width: object, height: object) -> Size | None:
    """Both as pixels, or None where either is not a positive whole number."""
    if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0:
        return width, height
    return None


def _load(path: str) -> Any:
    return orjson.loads(Path(path).read_bytes())
