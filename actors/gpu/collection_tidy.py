"""Tidies a transcribed page of htrflow's collection API (0.2.6) before it is exported, and takes its sidecar.

There polygons are absolute and a node's label becomes an XML id. The sidecar is taken from the tree itself,
which is exported without htrflow's own pruning: that drops regions without lines, and lines without words
beside lines with.
"""

from __future__ import annotations

from typing import Any

from htrflow.results import TEXT_RESULT_KEY, RecognizedText
from htrflow.utils.geometry import Bbox, Polygon

from actors.gpu.tidy import box, clean_confidence, clean_label, clean_polygon, clean_text, extent
from actors.gpu.tree import Line, Points, Region, Tree, Word

BORN = "_born_in_step"
"""Attribute of a node: the number of the segmentation step that made it."""


def settle_births(page: Any, step: int) -> None:
    """Remember that the nodes which are new below `page` came from segmentation step `step` (from 1)."""
    for node in page.traverse():
        if node is not page and not hasattr(node, BORN):
            setattr(node, BORN, step)


def tidy(page: Any, width: int, height: int, segmentations: int) -> Tree:
    """Make `page` (width x height pixels) exportable and return what it then holds.

    `segmentations` is the number of the pipeline's segmentation steps, 0 for none.
    """
    tree = Tree(width, height, segmented=segmentations > 0)
    for node in page.traverse():
        _clean_result(node)
    _drop_made_up(page, segmentations, tree)
    _settle_lines(page)
    _set_places(page, box(0, width, 0, height), width, height)
    page.relabel()
    _collect(page, box(0, width, 0, height), tree)
    return tree


def _clean_result(node: Any) -> None:
    result = node.get(TEXT_RESULT_KEY)
    if result is None:
        return
    texts = [clean_text(text) for text in result.texts]
    scores = [clean_confidence(score) for score in result.scores][: len(texts)]
    node.add_data(
        **{TEXT_RESULT_KEY: RecognizedText(texts or [""], (scores + [0.0] * len(texts))[: len(texts)] or [0.0])}
    )


def _drop_made_up(node: Any, segmentations: int, tree: Tree) -> None:
    """The recogniser reads whatever is a leaf: also a page, or a region, in which no line was found, and
    makes text up.

    Such a leaf is older than the last segmentation step.
    """
    if node.text is None:
        for child in node.children:
            _drop_made_up(child, segmentations, tree)
    elif not node.children and getattr(node, BORN, 0) < segmentations:
        del node.data[TEXT_RESULT_KEY]
        tree.dropped += 1


def _settle_lines(page: Any) -> None:
    """Words that say nothing go. An empty line keeps a space: beside one that is None or empty, the ALTO of
    0.2.6 loses the whole block."""
    for node in page.traverse():
        if node.is_line():
            node.children = [word for word in node.children if (word.text or "").strip()]
            for word in node.children:
                word.children = []
            siblings = [
                node,
                *(other for other in node.parent.children if other.text is None and other.is_leaf()),
            ]
            for line in siblings:
                if not line.text:
                    line.add_data(**{TEXT_RESULT_KEY: RecognizedText([" "], [0.0])})


def _set_places(node: Any, around: Points, width: int, height: int) -> None:
    for child in node.children:
        segment = child._segment
        points = clean_polygon(segment.polygon or segment.bbox.polygon(), width, height, around)
        (left, right), (top, bottom) = extent(points)
        segment.polygon, segment.bbox = Polygon(points), Bbox(left, top, right, bottom)
        child._label = clean_label(child._label)
        _set_places(child, points, width, height)


def _collect(node: Any, points: Points, tree: Tree) -> None:
    """Regions that hold lines, or nothing at all; a page whose children are lines is a region itself."""
    lines = [child for child in node.children if child.is_line()]
    if lines or (node.is_leaf() and not node.is_root() and node.text is None):
        tree.regions.append(Region(points, [_line(line) for line in lines]))
    elif node.text is not None:
        tree.unplaced.append(node.text)
        return
    for child in node.children:
        if not child.is_line():
            _collect(child, _points(child), tree)


def _line(line: Any) -> Line:
    return Line(_points(line), line.text.strip(), [Word(_points(word), word.text) for word in line.children])


def _points(node: Any) -> Points:
    return [(x, y) for x, y in node.polygon]
