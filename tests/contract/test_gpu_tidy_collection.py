"""Trees of the real htrflow 0.2.6, as bad as they come, tidied and exported by its own serializers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from lxml import etree

pytest.importorskip("htrflow.volume.node", reason="htrflow 0.2.6 is not installed")

from htrflow.results import TEXT_RESULT_KEY, RecognizedText, Segment
from htrflow.serialization import AltoXML, PageXML
from htrflow.utils.geometry import Polygon
from htrflow.volume.node import Node
from htrflow.volume.volume import PageNode, SegmentNode

from actors.gpu.collection_tidy import settle_births, tidy
from actors.gpu.exports import EscapingTemplate
from actors.gpu.tree import Tree

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
WIDTH, HEIGHT = 200, 100


class Page(PageNode):  # type: ignore[misc]
    def __init__(self) -> None:
        self._image = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
        Node.__init__(self, None, "p0001")
        self.add_data(file_name="0001", image_path="0001.png", image_name="0001")


def add(node: Any, *boxes: Sequence[float], label: str = "region") -> list[Any]:
    """Children of `node` with those boxes, absolute."""
    node.children = [SegmentNode(Segment(bbox=box, class_label=label), node) for box in boxes]
    for child, box in zip(node.children, boxes, strict=True):
        child._segment.polygon = Polygon([(box[0], box[1]), (box[2], box[1]), (box[2], box[3]), (box[0], box[3])])
        child._segment.bbox = child._segment.polygon.bbox()
    return list(node.children)


def read(node: Any, *texts: str, scores: Sequence[float] = (0.5,)) -> None:
    node.add_data(**{TEXT_RESULT_KEY: RecognizedText(list(texts), list(scores))})


def exported(page: Page, segmentations: int = 2) -> tuple[etree._Element, etree._Element, Tree]:
    page.relabel()
    tree = tidy(page, WIDTH, HEIGHT, segmentations)
    files = []
    for serializer in (AltoXML(), PageXML()):
        serializer.template = EscapingTemplate(serializer.template)
        files.append(etree.fromstring(serializer.serialize(page).encode()))
    return files[0], files[1], tree


def lines_of(page: Page, texts: Sequence[str]) -> list[Any]:
    """One region with a line for each text, as two segmentation steps make them."""
    (region,) = add(page, (10, 10, 190, 90))
    settle_births(page, 1)
    lines = add(region, *[(20, 20 + 9 * n, 120, 28 + 9 * n) for n in range(len(texts))])
    settle_births(page, 2)
    for line, text in zip(lines, texts, strict=True):
        read(line, text)
    return lines


def test_a_lines_text_is_not_lost_because_its_neighbours_is_empty() -> None:
    page = Page()
    lines_of(page, ["först", "", "sist"])
    alto, xml, tree = exported(page)
    assert alto.xpath("//@CONTENT") == ["först", " ", "sist"]
    assert [e.text for e in xml.iter("{*}Unicode")] == ["först", " ", "sist"]
    assert tree.text == ["först", "sist"]


def test_a_line_without_any_result_does_not_take_the_block_with_it() -> None:
    page = Page()
    lines = lines_of(page, ["ett", "två"])
    del lines[1].data[TEXT_RESULT_KEY]
    assert exported(page)[0].xpath("//@CONTENT") == ["ett", " "]


def test_a_line_without_words_stays_beside_one_with_words() -> None:
    page = Page()
    lines = lines_of(page, ["ett två", "tre"])
    for word, text in zip(add(lines[0], (20, 20, 60, 28), (60, 20, 120, 28)), ["ett", "två"], strict=True):
        read(word, text)
    alto, xml, tree = exported(page)
    assert alto.xpath("//@CONTENT") == ["ett", "två", "tre"] == [e.text for e in xml.iter("{*}Unicode")]
    assert tree.text == ["ett två", "tre"]
    assert [word.text for word in tree.regions[0].lines[0].words] == ["ett", "två"]


def test_words_that_say_nothing_go_and_the_line_keeps_its_text() -> None:
    page = Page()
    lines = lines_of(page, ["ett två"])
    first, second = add(lines[0], (20, 20, 60, 28), (60, 20, 120, 28))
    read(first, " ")
    assert second.text is None
    assert exported(page)[0].xpath("//@CONTENT") == ["ett två"]


def test_a_region_without_lines_stays_and_what_was_read_from_it_goes() -> None:
    page = Page()
    (first, second) = add(page, (10, 10, 190, 40), (10, 50, 190, 90))
    settle_births(page, 1)
    (line,) = add(first, (20, 20, 120, 28))
    settle_births(page, 2)
    read(line, "text"), read(second, "made up")
    alto, xml, tree = exported(page)
    assert alto.xpath("//@CONTENT") == ["text"]
    assert len(list(xml.iter("{*}TextRegion"))) == len(tree.regions) == 2
    assert (tree.text, tree.dropped) == (["text"], 1)


def test_lines_on_a_page_without_regions_lie_in_a_region_that_is_the_page() -> None:
    page = Page()
    settle_births(page, 1)
    (line,) = add(page, (20, 20, 120, 28))
    settle_births(page, 2)
    read(line, "text")
    alto, xml, tree = exported(page)
    assert alto.xpath("//@CONTENT") == ["text"] == [e.text for e in xml.iter("{*}Unicode")]
    assert tree.regions[0].polygon == [(0, 0), (WIDTH, 0), (WIDTH, HEIGHT), (0, HEIGHT)]


def test_numbers_that_are_none_and_places_beside_the_page_are_mended() -> None:
    page = Page()
    (line,) = lines_of(page, ["text"])
    read(line, "text", "other", scores=[math.nan, 1.5])
    line._segment.polygon = Polygon([(-5, 20.4), (300.6, 20.4), (300.6, 28)])
    alto, xml, _ = exported(page)
    assert "nan" not in etree.tostring(alto).decode() + etree.tostring(xml).decode()
    assert alto.xpath("//@WC") == ["1.0"]
    assert alto.xpath("//@CONTENT") == ["other"]
    (coords,) = xml.xpath("//*[local-name()='TextLine']/*[local-name()='Coords']/@points")
    assert coords == "0,20 200,20 200,28"


@pytest.mark.parametrize("label", ["text region", "1:a", "rubrik å"])
def test_class_names_become_ids(label: str) -> None:
    page = Page()
    for region in add(page, (10, 10, 190, 40), (10, 50, 190, 90), label=label):
        settle_births(page, 1)
        (line,) = add(region, (20, 20, 120, 28), label=label)
        read(line, "x")
    settle_births(page, 2)
    alto, xml, _ = exported(page)
    ids = [*alto.xpath("//@ID"), *xml.xpath("//@id")]
    assert len(set(alto.xpath("//@ID"))) == len(alto.xpath("//@ID"))
    for name in ids:
        etree.fromstring(f"<{name}/>")


def test_places_are_the_same_in_both_files_and_in_the_sidecar() -> None:
    page = Page()
    lines_of(page, ["ett", "två"])
    alto, xml, tree = exported(page)
    wanted = [line["polygon"] for line in json.loads(tree.as_json())["regions"][0]["lines"]]
    in_page = [
        [[int(v) for v in point.split(",")] for point in points.split()]
        for points in xml.xpath("//*[local-name()='TextLine']/*[local-name()='Coords']/@points")
    ]
    assert in_page == wanted
    for line, polygon in zip(alto.iter("{*}TextLine"), wanted, strict=True):
        left, top, width, height = (int(line.get(a)) for a in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))  # type: ignore[arg-type]
        assert polygon == [[left, top], [left + width, top], [left + width, top + height], [left, top + height]]
