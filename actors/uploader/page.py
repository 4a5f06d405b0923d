"""PAGE: mending htrflow's file, and reading from it where every region, line and word lies and what it says.

Its positions are absolute in both htrflow APIs, so they are the ones that the ALTO is set by (`alto.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from actors.uploader.markup import (
    Box,
    Element,
    Frame,
    Point,
    box_of,
    clamp_share,
    drop_dangling,
    drop_empty,
    named,
    outline,
    read_points,
    without,
    write_points,
)

NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/"
CONF_SINCE = "2014"
"""Coords/@conf, TextEquiv/@index and a second TextEquiv are no part of the schemas before (2013-07-15)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one region, line or word lies, in absolute pixels. `empty`: a region with nothing in it."""

    id: str
    polygon: tuple[Point, ...]
    box: Box
    empty: bool


def version(root: Element) -> str:
    """The date in the namespace of its root (`2019-07-15`); empty where it is no PAGE."""
    namespace = etree.QName(root).namespace or ""
    return namespace.removeprefix(NAMESPACE) if namespace.startswith(NAMESPACE) else ""


def repair(root: Element, frame: Frame) -> list[Place]:
    """Mend a PAGE document in place; the places of its regions, lines and words in document order."""
    space = f"{{{etree.QName(root).namespace}}}"
    named(root, "id", ("regionRef",))
    for page in root.iter(f"{space}Page"):
        page.set("imageWidth", str(frame.width))
        page.set("imageHeight", str(frame.height))
    for text in root.iter(f"{space}TextEquiv"):
        clamp_share(text, "conf")
    places = [
        place
        for element in root.iter(f"{space}TextRegion", f"{space}TextLine", f"{space}Word")
        if (place := _mended(element, space, frame))
    ]
    for coords in root.iter(f"{space}Coords"):
        clamp_share(coords, "conf")
    if version(root) < CONF_SINCE:
        _before_conf(root, space)
    drop_dangling(root, frozenset({f"{space}RegionRefIndexed", f"{space}RegionRef"}), "regionRef", _ids(root))
    kinds = ("OrderedGroup", "UnorderedGroup", "OrderedGroupIndexed", "UnorderedGroupIndexed")
    drop_empty(root, frozenset(space + kind for kind in kinds), f"{space}ReadingOrder")
    return places


def line_texts(root: Element) -> Iterator[str]:
    """The text of every line: its words' joined, else its own first reading."""
    space = f"{{{etree.QName(root).namespace}}}"
    for line in root.iter(f"{space}TextLine"):
        words = [_reading(word, space) for word in line.iterchildren(f"{space}Word")]
        yield " ".join(words) if any(words) else _reading(line, space)


def _reading(element: Element, space: str) -> str:
    return element.findtext(f"{space}TextEquiv/{space}Unicode") or ""


def _mended(element: Element, space: str, frame: Frame) -> Place | None:
    coords, identity = element.find(f"{space}Coords"), element.get("id")
    if coords is None or identity is None:
        return None
    points = outline(read_points(coords.get("points") or "", frame), frame)
    coords.set("points", write_points(points))
    holds = (f"{space}TextLine", f"{space}TextRegion")
    empty = element.tag == f"{space}TextRegion" and next(element.iterchildren(*holds), None) is None
    return Place(identity, tuple(points), box_of(points, frame), empty)


def _before_conf(root: Element, space: str) -> None:
    for coords in root.iter(f"{space}Coords"):
        without(coords, "conf")
    for element in list(root.iter(f"{space}TextLine", f"{space}Word")):
        for rank, text in enumerate(element.findall(f"{space}TextEquiv")):
            without(text, "index")
            if rank:
                element.remove(text)


def _ids(root: Element) -> set[str]:
    return {identity for e in root.iter(etree.Element) if (identity := e.get("id"))}
