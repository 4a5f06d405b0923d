"""Turns a Presentation manifest of any version into the page list (batchpod/README.md, sections 3 and 5).

Owns what a manifest is, which canvases it has and what is wrong with it, judged by type and shape and never
by `@context`, which is missing or wrong in many. Which image a canvas paints is painting.py's. No network
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from actors.fetcher.jsonld import as_list, identifier, is_http_url, parse, pixels, type_names, types
from actors.fetcher.labels import first_text, language_map
from actors.fetcher.painting import Image, Painting, painting
from actors.fetcher.sizes import first_url
from actors.fetcher.source import NO_IMAGE, ManifestError, Page, Source
from actors.redact import for_log, source_digest

EmptyCanvas = Literal["refuse", "record"]

_NAMED = 10
"""Canvases, sequences or painted things that one message names before it says there are more."""
_JSON_KINDS = {list: "list", str: "string", bool: "boolean", type(None): "null"}


def read_manifest(
    body: bytes, *, max_width: int, empty_canvas: EmptyCanvas, max_pages: int, url: str | None = None
) -> Source:
    """The pages of the first `max_pages` canvases (0: all), images asked at most `max_width` pixels wide.

    Canvases beyond `max_pages` are counted and not judged. Raises ManifestError, and nothing else whatever
    the bytes.
    """
    try:
        document = _document(body)
        canvases, notes = _canvases(document)
        if not canvases:
            raise ManifestError("the manifest is empty: it has no canvases")
        taken = canvases[: max_pages or None]
        paintings = [painting(canvas) for canvas in taken]
        _refuse(taken, paintings, empty_canvas)
        pages = tuple(_page(*pair, max_width) for pair in zip(taken, paintings, strict=True))
        label = language_map(document.get("label"))
    except RecursionError:
        raise ManifestError("the manifest is nested too deeply to be read") from None
    return Source(url, label, len(canvases), pages, (*notes, *_notes(paintings)))


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = parse(body)
    except ValueError as error:
        html = ", it looks like an HTML page" if body.lstrip()[:1] == b"<" else ""
        raise ManifestError(f"the manifest is not JSON{html}: {error}") from None
    if not isinstance(document, dict):
        kind = _JSON_KINDS.get(type(document), "number")
        raise ManifestError(f"the manifest is not a JSON object: its top level is a {kind}")
    return document


def _canvases(document: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """The canvases, whatever they are, and notes on what was left out."""
    kinds = types(document)
    if "collection" in kinds or (not kinds and ("manifests" in document or "members" in document)):
        raise ManifestError(
            f"this is a Collection with {_count_manifests(document)} manifests, not a Manifest: "
            "give the URL of one of its manifests"
        )
    sequences, items = document.get("sequences"), as_list(document.get("items"))
    if kinds and "manifest" not in kinds:
        raise ManifestError(f"this is not a Manifest: its type is {_clip(', '.join(type_names(document)))}")
    if not kinds and sequences is None and not items:
        raise ManifestError("this is not a Manifest: it has no type")
    if items:
        return items, []
    if not sequences:
        raise ManifestError("the manifest is empty: it has no sequences and no items, so no canvases")
    return _first_sequence(as_list(sequences))


def _count_manifests(collection: dict[str, Any]) -> int:
    listed = [*as_list(collection.get("items")), *as_list(collection.get("members"))]
    typed = [entry for entry in listed if isinstance(entry, dict) and "manifest" in types(entry)]
    return len(as_list(collection.get("manifests"))) + len(typed)


def _first_sequence(sequences: list[Any]) -> tuple[list[Any], list[str]]:
    first, *others = sequences
    if not isinstance(first, dict):
        raise ManifestError("the manifest's first sequence is not an object")
    canvases = _canvases_of(first)
    if not canvases:
        raise ManifestError("the manifest is empty: its first sequence has no canvases")
    if not others:
        return canvases, []
    left_out = _listed([_sequence(other) for other in others])
    return canvases, [
        f"the manifest has {len(sequences)} sequences: the first is read ({len(canvases)} canvases), "
        f"left out: {left_out}"
    ]


def _canvases_of(sequence: Any) -> list[Any]:
    if not isinstance(sequence, dict):
        return []
    return as_list(sequence.get("canvases")) or as_list(sequence.get("items"))


def _sequence(sequence: Any) -> str:
    name = first_text(language_map(sequence.get("label"))) if isinstance(sequence, dict) else ""
    return f'"{_clip(name)}" ({len(_canvases_of(sequence))} canvases)'


def _refuse(canvases: list[Any], paintings: list[Painting], empty_canvas: EmptyCanvas) -> None:
    """Raises for the first canvas that cannot be a page, and says how many are like it."""
    empty = [i for i, painted in enumerate(paintings) if painted.image is None and empty_canvas == "refuse"]
    unusable = [i for i, painted in enumerate(paintings) if painted.image and not _askable(painted.image)]
    first = min([*empty[:1], *unusable[:1]], default=None)
    if first is None:
        return
    name, painted = _name(first + 1, canvases[first]), paintings[first]
    if painted.image is not None:
        raise ManifestError(f"{name} has an image URL that is not http(s): {_clip(painted.image.url)}")
    details = [f"one of {len(empty)} such canvases"] if len(empty) > 1 else []
    if painted.others:
        details.append(f"it paints: {_clip(_listed(painted.others))}")
    detail = f" ({'; '.join(details)})" if details else ""
    raise ManifestError(
        f"{name} has no image{detail}; with EMPTY_CANVAS=record such a canvas keeps its page number, "
        "is recorded as failed, and the others are transcribed"
    )


def _askable(image: Image) -> bool:
    return image.service is not None or is_http_url(image.url)


def _page(canvas: Any, painted: Painting, max_width: int) -> Page:
    fields = canvas if isinstance(canvas, dict) else {}
    image, width = painted.image, pixels(fields.get("width"))
    service = image.service if image else None
    url = first_url(service, width, max_width) if service else image.url if image else ""
    return Page(
        url=url,
        service=service.base if service else None,
        api=service.api if service else 2,
        level0=service is not None and service.level0,
        canvas_id=identifier(fields),
        label=language_map(fields.get("label")),
        width=width,
        height=pixels(fields.get("height")),
        body=image.body() if image else {},
        digest=source_digest(url) if image else "",
        error=None if image else NO_IMAGE,
    )


def _notes(paintings: list[Painting]) -> list[str]:
    several = [number for number, painted in enumerate(paintings, 1) if painted.images > 1]
    empty = [number for number, painted in enumerate(paintings, 1) if painted.image is None]
    notes = []
    if several:
        notes.append(f"more than one image is painted, and only the first is taken, on {_numbers(several)}")
    if empty:
        notes.append(f"no image is painted, and the page is recorded as failed, on {_numbers(empty)}")
    return notes


def _numbers(canvases: list[int]) -> str:
    noun = "canvas" if len(canvases) == 1 else "canvases"
    return f"{len(canvases)} {noun}: {_listed([str(number) for number in canvases])}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*names[:_NAMED], *(["…"] if len(names) > _NAMED else [])])


def _name(number: int, canvas: Any) -> str:
    """`canvas 3 "p. 3" <http://…>`, as far as the canvas has a label and an id."""
    fields = canvas if isinstance(canvas, dict) else {}
    label, canvas_id = first_text(language_map(fields.get("label"))), identifier(fields)
    named = f' "{_clip(label)}"' if label else ""
    return f"canvas {number}{named}" + (f" <{_clip(canvas_id)}>" if canvas_id else "")


def _clip(text: str) -> str:
    """Foreign text for a message: on one line, bounded, redacted."""
    line = " ".join(for_log(text).split())
    return line if len(line) <= 300 else line[:299] + "…"
