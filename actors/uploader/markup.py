"""What both formats share: reading XML safely, names, numbers and points.

Knows nothing of ALTO or PAGE; `alto.py` and `page.py` do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from lxml import etree

Element = etree._Element
Point = tuple[int, int]


class BadExport(Exception):
    """The page's own output cannot be published: the page is failed. `text_lost`: it holds none of its text."""

    def __init__(self, reason: str, *, text_lost: bool = False) -> None:
        super().__init__(reason)
        self.text_lost = text_lost


FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 section 2.2 has no place for."""
_REFERENCE = re.compile(r"&#(?:x([0-9a-fA-F]{1,8})|([0-9]{1,10}));")
_START = (
    "A-Z_a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_REST = _START + "\\-.0-9\xb7\u0300-\u036f\u203f-\u2040"
_NAME = re.compile(f"[{_START}][{_REST}]*")
"""An NCName (Namespaces in XML 1.0, section 3)."""
_POINT = re.compile(r"\s*([^\s,]+)\s*,\s*([^\s,]+)")


def parse(data: bytes) -> Element:
    """The root element. No entity is expanded, no DTD loaded, no network asked.

    Characters that XML forbids (and references to them) are taken out when the text does not parse with them.

    Raises:
        BadExport: it is not well-formed XML, or declares a document type (neither htrflow nor a schema needs one).
    """
    try:
        root = etree.fromstring(data, _parser())
    except etree.XMLSyntaxError:
        try:
            root = etree.fromstring(_without_forbidden(data), _parser())
        except etree.XMLSyntaxError as e:
            raise BadExport(f"malformed XML: {e.msg}") from e
    if root.getroottree().docinfo.internalDTD is not None:
        raise BadExport("malformed XML: it declares a document type")
    return root


def serialize(root: Element) -> bytes:
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8")


def allowed(text: str) -> str:
    """`text` without the characters that XML forbids."""
    return FORBIDDEN.sub("", text)


def named(root: Element, identity: str, references: tuple[str, ...]) -> None:
    """Make every `identity` attribute an XML name (NCName), and what refers to it in `references` likewise."""
    wrong = {value for e in root.iter(etree.Element) if (value := e.get(identity)) and not _NAME.fullmatch(value)}
    if not wrong:
        return
    taken = {value for e in root.iter(etree.Element) if (value := e.get(identity))} - wrong
    renamed: dict[str, str] = {}
    for value in sorted(wrong):
        name = "_" + re.sub(f"[^{_REST}]", "_", value)
        while name in taken:
            name += "_"
        taken.add(name)
        renamed[value] = name
    for element in root.iter(etree.Element):
        if (value := element.get(identity)) in renamed:
            element.set(identity, renamed[value])
        for attribute in references:
            if value := element.get(attribute):
                element.set(attribute, " ".join(renamed.get(v, v) for v in value.split()))


def number(text: str | None) -> float | None:
    """A finite number, or None."""
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def without(element: Element, attribute: str) -> None:
    """Take `attribute` out, if it is there."""
    if attribute in element.attrib:
        del element.attrib[attribute]


def clamp_share(element: Element, *attributes: str) -> None:
    """Attributes that hold a share: clamped to 0..1, left out where they are no finite number."""
    for attribute in attributes:
        text = element.get(attribute)
        if text is None:
            continue
        value = number(text)
        if value is None:
            del element.attrib[attribute]
        elif not 0 <= value <= 1:
            element.set(attribute, str(min(max(value, 0), 1)))


@dataclass(frozen=True, slots=True)
class Frame:
    """The page in pixels; points lie on or inside its edges."""

    width: int
    height: int

    def clamp(self, x: float, y: float) -> Point:
        return round(min(max(x, 0), self.width)), round(min(max(y, 0), self.height))


@dataclass(frozen=True, slots=True)
class Box:
    """An upright rectangle of at least one pixel (smaller only on a page that is)."""

    x: int
    y: int
    width: int
    height: int

    @property
    def corners(self) -> list[Point]:
        right, below = self.x + self.width, self.y + self.height
        return [(self.x, self.y), (right, self.y), (right, below), (self.x, below)]


def read_points(text: str, frame: Frame) -> list[Point]:
    """`x,y x,y …` as whole pixels clamped to the page; points that are no finite numbers are left out."""
    pairs = ((number(x), number(y)) for x, y in _POINT.findall(text))
    return [frame.clamp(x, y) for x, y in pairs if x is not None and y is not None]


def write_points(points: Iterable[Point]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def box_of(points: list[Point], frame: Frame) -> Box:
    """The smallest box around `points`, at least one pixel wide and high and inside the page."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    left, top = min(xs), min(ys)
    width, height = max(max(xs) - left, 1), max(max(ys) - top, 1)
    return Box(max(min(left, frame.width - width), 0), max(min(top, frame.height - height), 0), width, height)


def outline(points: list[Point], frame: Frame) -> list[Point]:
    """`points` where they span an area; else the corners of their box. Points that are not there are a page corner."""
    points = points or [(0, 0)]
    distinct = len(set(points)) >= 3
    flat = len({x for x, _ in points}) == 1 or len({y for _, y in points}) == 1
    return points if distinct and not flat else box_of(points, frame).corners


def drop_empty(root: Element, tags: frozenset[str], enclosing: str) -> None:
    """Remove the elements of `tags` that have no child element, innermost first, and then an empty `enclosing`."""
    for element in [e for e in root.iter(etree.Element) if e.tag in tags][::-1]:
        if len(element) == 0:
            _remove(element)
    for element in list(root.iter(enclosing)):
        if len(element) == 0:
            _remove(element)


def drop_dangling(root: Element, tags: frozenset[str], reference: str, targets: set[str]) -> None:
    """Remove the elements of `tags` whose `reference` names nothing in `targets`."""
    for element in [e for e in root.iter(etree.Element) if e.tag in tags]:
        if not set((element.get(reference) or "").split()) & targets:
            _remove(element)


def _remove(element: Element) -> None:
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)


def _parser() -> etree.XMLParser:
    return etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=False)


def _without_forbidden(data: bytes) -> bytes:
    text = _REFERENCE.sub(_kept_reference, data.decode("utf-8", "replace"))
    return allowed(text).encode()


def _kept_reference(match: re.Match[str]) -> str:
    code = int(match[1], 16) if match[1] else int(match[2])
    legal = code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF and not FORBIDDEN.match(chr(code))
    return match[0] if legal else ""
