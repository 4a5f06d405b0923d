"""ALTO: mending htrflow's file so that it is valid ALTO 4.4 and says where things are as the PAGE does.

htrflow main writes a word's box without its region's offset and a region's outline with it twice; setting every
position from the PAGE's absolute ones, by id, mends both and stays right once htrflow is mended.
"""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from actors.uploader.markup import (
    Box,
    Element,
    Frame,
    clamp_share,
    drop_dangling,
    drop_empty,
    named,
    number,
    outline,
    read_points,
    without,
    write_points,
)
from actors.uploader.page import Place

SPACE = "{http://www.loc.gov/standards/alto/ns-v4#}"
_BLOCK, _LINE, _STRING = f"{SPACE}TextBlock", f"{SPACE}TextLine", f"{SPACE}String"
_GROUPS = frozenset({f"{SPACE}OrderedGroup", f"{SPACE}UnorderedGroup"})
_AREAS = tuple(SPACE + name for name in ("TopMargin", "LeftMargin", "RightMargin", "BottomMargin", "PrintSpace"))


def is_alto(root: Element) -> bool:
    return bool(root.tag == f"{SPACE}alto")


def repair(root: Element, frame: Frame, places: list[Place]) -> None:
    """Mend an ALTO document in place; `places` are those of the same page's PAGE."""
    named(root, "ID", ("REF", "IDNEXT"))
    for page in root.iter(f"{SPACE}Page"):
        page.set("WIDTH", str(frame.width))
        page.set("HEIGHT", str(frame.height))
        clamp_share(page, "PC", "ACCURACY")
    by_id = {_alto_id(place.id): place for place in places}
    _add_empty_blocks(root, places)
    for element in root.iter(_BLOCK, _LINE, _STRING, *_AREAS):
        place = by_id.get(_plain_id(element.get("ID") or ""))
        _set_place(element, place, frame)
    for line in root.iter(_LINE):
        _box_bare_strings(line)
    for string in root.iter(_STRING):
        clamp_share(string, "WC")
    drop_dangling(root, frozenset({f"{SPACE}ElementRef"}), "REF", _ids(root))
    drop_empty(root, _GROUPS, f"{SPACE}ReadingOrder")


def line_texts(root: Element) -> Iterator[str]:
    """The text of every line."""
    for line in root.iter(_LINE):
        yield " ".join(string.get("CONTENT") or "" for string in line.iterchildren(_STRING))


def page_size(root: Element) -> tuple[int, int] | None:
    """Width and height of the page in pixels, as the file says."""
    page = root.find(f"{SPACE}Layout/{SPACE}Page")
    if page is None:
        return None
    width, height = number(page.get("WIDTH")), number(page.get("HEIGHT"))
    return (round(width), round(height)) if width and height else None


def _alto_id(page_id: str) -> str:
    """The id that both formats' names of one thing are reduced to: main says `region3_line0` in its PAGE and
    `block3_line0` in its ALTO, 0.2.6 the same name in both."""
    return page_id.replace("region", "block", 1) if page_id.startswith("region") else page_id


def _plain_id(alto_id: str) -> str:
    """main's block is `block_3`, its lines `block3_line0`."""
    if alto_id.startswith("block_") and alto_id[6:].isdigit():
        return f"block{alto_id[6:]}"
    return _alto_id(alto_id)


def _set_place(element: Element, place: Place | None, frame: Frame) -> None:
    """The box, and the outline where there is one; without a place its own numbers, made finite and clamped."""
    if place is not None:
        _set_box(element, place.box)
    else:
        _clamp_box(element, frame)
    polygon = element.find(f"{SPACE}Shape/{SPACE}Polygon")
    if polygon is None:
        return
    if place is not None:
        polygon.set("POINTS", write_points(place.polygon))
    elif own := read_points(polygon.get("POINTS") or "", frame):
        polygon.set("POINTS", write_points(outline(own, frame)))
    else:
        shape = polygon.getparent()
        if shape is not None:
            element.remove(shape)


def _set_box(element: Element, box: Box) -> None:
    sides = {"HPOS": box.x, "VPOS": box.y, "WIDTH": box.width, "HEIGHT": box.height}
    for name, value in sides.items():
        element.set(name, str(value))


def _clamp_box(element: Element, frame: Frame) -> None:
    for position, extent, limit in (("HPOS", "WIDTH", frame.width), ("VPOS", "HEIGHT", frame.height)):
        start, size = number(element.get(position)), number(element.get(extent))
        for name, value in ((position, start), (extent, size)):
            if value is None:
                without(element, name)
        if start is None or size is None:
            continue
        end = round(min(max(start + size, 1), limit))
        start = round(min(max(start, 0), max(end - 1, 0)))
        element.set(position, str(start))
        element.set(extent, str(end - start))


def _box_bare_strings(line: Element) -> None:
    """A line read as a whole is one String without an id: it has its line's box."""
    for string in line.iterchildren(_STRING):
        if string.get("ID") is None:
            for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT"):
                if (value := line.get(name)) is not None:
                    string.set(name, value)


def _add_empty_blocks(root: Element, places: list[Place]) -> None:
    """A region without lines (a stamp, a picture) gets an empty TextBlock under its id: both files say it is there."""
    missing = [place for place in places if place.empty]
    have = {_plain_id(block.get("ID") or ""): block for block in root.iter(_BLOCK)}
    missing = [place for place in missing if _alto_id(place.id) not in have]
    page = root.find(f"{SPACE}Layout/{SPACE}Page")
    if not missing or page is None:
        return
    space = page.find(f"{SPACE}PrintSpace")
    if space is None:
        space = etree.SubElement(page, f"{SPACE}PrintSpace")
    main = any(identity.startswith("block_") for identity in (b.get("ID") or "" for b in have.values()))
    order = [_alto_id(place.id) for place in places]
    for place in missing:
        block = etree.Element(_BLOCK, ID=_new_block_id(place.id, main))
        _set_box(block, place.box)
        later = (have[i] for i in order[order.index(_alto_id(place.id)) + 1 :] if i in have)
        following = next((b for b in later if b.getparent() is space), None)
        if following is None:
            space.append(block)
        else:
            following.addprevious(block)


def _new_block_id(region_id: str, main: bool) -> str:
    index = region_id.removeprefix("region")
    return f"block_{index}" if main and index.isdigit() else region_id


def _ids(root: Element) -> set[str]:
    return {identity for e in root.iter(etree.Element) if (identity := e.get("ID"))}
