"""Tidies a transcribed document of htrflow's document API before it is exported, and takes its sidecar.

There a polygon is relative to its parent's box. All absolute places are found first, then set anew from the
clipped parents, so that a clipped region does not move its lines. The templates know two levels, regions
and lines (and words in lines): regions within regions are hoisted to the page.
"""

from __future__ import annotations

from typing import Any

from htrflow.document import Region as HtrflowRegion
from htrflow.utils.geometry import Bbox, Polygon

from actors.gpu.tidy import box, clean_confidence, clean_polygon, clean_text, extent
from actors.gpu.tree import Line, Points, Region, Tree, Word

BORN = "_born_in_step"
"""Attribute of a region: the number of the step that made it (see `settle_births`)."""


def settle_births(node: Any, step: int) -> None:
    """Look after the regions below `node` that are new, from segmentation step `step` (from 1).

    Where they came from is remembered, and one without extent gets a pixel: the next step cuts it out, and an
    empty cut would fail the whole page.
    """
    for child in node.regions:
        if not hasattr(child, BORN):
            setattr(child, BORN, step)
            if not child.polygon.width or not child.polygon.height:
                size = node.polygon.width, node.polygon.height
                child.polygon = Polygon(clean_polygon(child.polygon, *size))
        settle_births(child, step)


def tidy(document: Any, width: int, height: int, segmentations: int) -> Tree:
    """Make `document` (width x height pixels) exportable and return what it then holds.

    `segmentations` is the number of the pipeline's segmentation steps, 0 for none.
    """
    tree = Tree(width, height, segmented=segmentations > 0)
    _clean_texts(document)
    _drop_made_up(document, segmentations, tree)
    _drop_silent_words(document)
    places: dict[int, Points] = {}
    _find_places(document, (0, 0), box(0, width, 0, height), width, height, places)
    document.regions = [block for region in document.regions for block in _hoisted(region, segmentations)]
    if segmentations > 1:
        _give_lines_a_region(document, width, height, places)
    for region in document.regions:
        _set_place(region, (0, 0), places)
        if region.transcription:
            tree.unplaced.append(region.transcription[0].text)
        lines = [_line(line, places) for line in region.regions] if not region.transcription else []
        tree.regions.append(Region(places[id(region)], lines))
    if document.transcription:
        tree.unplaced.append(document.transcription[0].text)
    return tree


def _clean_texts(document: Any) -> None:
    for node in document.traverse():
        for text in node.transcription:
            text.text = clean_text(text.text)
            text.confidence = clean_confidence(text.confidence)
        if "segmentation_confidence" in node.annotations:
            confidence = clean_confidence(node.annotations["segmentation_confidence"])
            node.annotations["segmentation_confidence"] = confidence


def _drop_made_up(node: Any, segmentations: int, tree: Tree) -> None:
    """The recogniser reads whatever is a leaf: also a page, or a region, in which no line was found, and
    makes text up.

    Such a leaf is older than the last segmentation step.
    """
    if not node.transcription:
        for child in node.regions:
            _drop_made_up(child, segmentations, tree)
    elif not node.regions and getattr(node, BORN, 0) < segmentations:
        node.transcription = []
        tree.dropped += 1


def _words_of(node: Any) -> list[Any]:
    return [child for child in node.regions if node.transcription and child.transcription]


def _drop_silent_words(document: Any) -> None:
    """Below a line there are words: those without text say nothing, and what lies below words is not
    exported."""
    for node in document.traverse():
        if node is not document and node.transcription:
            node.regions = [word for word in _words_of(node) if word.transcription[0].text.strip()]
            for word in node.regions:
                word.regions = []


def _find_places(
    node: Any, origin: tuple[int, int], around: Points, width: int, height: int, places: dict[int, Points]
) -> None:
    """Absolute polygons of everything below `node`, whose own box begins at `origin` (absolute)."""
    for child in node.regions:
        points = [(x + origin[0], y + origin[1]) for x, y in child.polygon]
        places[id(child)] = clean_polygon(points, width, height, around)
        corner = (origin[0] + child.polygon.bbox.xmin, origin[1] + child.polygon.bbox.ymin)
        _find_places(child, corner, places[id(child)], width, height, places)


def _hoisted(region: Any, segmentations: int) -> list[Any]:
    """`region`, or in its place the regions within it (itself first if it holds lines too)."""
    inner = [child for child in region.regions if _is_region(child, segmentations)]
    if region.transcription or not inner:
        return [region]
    region.regions = [child for child in region.regions if child not in inner]
    blocks = [block for child in inner for block in _hoisted(child, segmentations)]
    return [region, *blocks] if region.regions else blocks


def _is_region(node: Any, segmentations: int) -> bool:
    """Whether `node` is no line: it holds some, or is older than the last segmentation step."""
    if node.transcription:
        return False
    if 0 < getattr(node, BORN, 0) < segmentations:
        return True
    return any(child.transcription or _is_region(child, segmentations) for child in node.regions)


def _give_lines_a_region(document: Any, width: int, height: int, places: dict[int, Points]) -> None:
    """Where no region was found, the next step finds lines on the whole page: the page is their region
    then."""
    lines = [node for node in document.regions if node.transcription]
    if lines:
        page = HtrflowRegion(Bbox(0, 0, width, height).polygon(), regions=lines)
        places[id(page)] = box(0, width, 0, height)
        at = document.regions.index(lines[0])
        others = [node for node in document.regions if not node.transcription]
        document.regions = [*others[:at], page, *others[at:]]


def _set_place(node: Any, origin: tuple[int, int], places: dict[int, Points]) -> None:
    points = places[id(node)]
    node.polygon = Polygon([(x - origin[0], y - origin[1]) for x, y in points])
    (left, _), (top, _) = extent(points)
    for child in node.regions:
        _set_place(child, (left, top), places)


def _line(line: Any, places: dict[int, Points]) -> Line:
    text = line.transcription[0].text if line.transcription else ""
    words = [Word(places[id(word)], word.transcription[0].text) for word in line.regions if word.transcription]
    return Line(places[id(line)], text, words)
