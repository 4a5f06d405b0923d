"""Documents of the document API, as bad as they come, tidied and exported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from tests.contract.document_trees import export
from tests.gpu_process import DOUBLE, first_on_the_path

Export = Callable[..., tuple[str, str, dict[str, Any]]]


@pytest.fixture(scope="module")
def exported() -> Iterator[Export]:
    with first_on_the_path(DOUBLE), ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(len, "").result(60)  # starts its process now, so that no test is thought to leave it behind
        yield lambda *args: pool.submit(export, *args).result(60)


def line(box: tuple[int, ...], text: str, *words: tuple[tuple[int, ...], str]) -> dict[str, Any]:
    return {"box": box, "text": text, "regions": [{"box": at, "text": said} for at, said in words]}


def test_a_region_that_leaves_the_page_is_clipped_and_its_lines_stay_where_they_are(exported: Export) -> None:
    regions = [{"box": (-20, -10, 300, 60), "regions": [line((30, 20, 120, 40), "text")]}]
    alto, page, tree = exported(regions)
    assert tree["regions"][0]["polygon"] == [[0, 0], [200, 0], [200, 60], [0, 60]]
    assert tree["regions"][0]["lines"][0]["polygon"] == [[10, 10], [100, 10], [100, 30], [10, 30]]
    assert '<Coords points="10,10 100,10 100,30 10,30"' in page
    assert 'HPOS="10" VPOS="10" HEIGHT="20" WIDTH="90"' in alto


def test_words_without_text_go_and_so_does_what_lies_below_words(exported: Export) -> None:
    said = line((0, 0, 90, 20), "ett två", ((0, 0, 40, 20), "ett"), ((40, 0, 60, 20), " "), ((60, 0, 90, 20), "två"))
    said["regions"].append({"box": (0, 0, 5, 5)})
    said["regions"][0]["regions"] = [{"box": (0, 0, 2, 2), "text": "e"}]
    alto, _, tree = exported([{"box": (10, 10, 150, 60), "regions": [said]}])
    assert re.findall('CONTENT="([^"]*)"', alto) == ["ett", "två"]
    assert [word["text"] for word in tree["regions"][0]["lines"][0]["words"]] == ["ett", "två"]


def test_a_line_whose_words_all_say_nothing_keeps_its_own_text(exported: Export) -> None:
    said = line((0, 0, 90, 20), "ett", ((0, 0, 40, 20), ""))
    assert 'CONTENT="ett"' in exported([{"box": (10, 10, 150, 60), "regions": [said]}])[0]


def test_numbers_that_are_none_are_left_out(exported: Export) -> None:
    said = {**line((0, 0, 90, 20), "ett"), "confidence": float("nan")}
    alto, page, _ = exported([{"box": (10, 10, 150, 60), "regions": [said]}])
    assert "nan" not in alto + page
    assert "conf=" not in page


def test_regions_within_regions_are_hoisted_where_they_are(exported: Export) -> None:
    inner = {"box": (10, 5, 90, 40), "born": 2, "regions": [line((1, 2, 50, 20), "inner")]}
    empty = {"box": (10, 42, 90, 48), "born": 2}
    outer = {"box": (20, 20, 180, 90), "born": 1, "regions": [inner, empty, line((0, 50, 60, 60), "own")]}
    alto, page, tree = exported([outer], 3)
    assert [[said["text"] for said in region["lines"]] for region in tree["regions"]] == [["own"], ["inner"], []]
    assert tree["regions"][1]["polygon"] == [[30, 25], [110, 25], [110, 60], [30, 60]]
    assert tree["regions"][1]["lines"][0]["polygon"] == [[31, 27], [80, 27], [80, 45], [31, 45]]
    assert '<Coords points="31,27 80,27 80,45 31,45"' in page
    assert alto.count("<TextBlock") == 2


def test_what_was_read_from_a_region_without_lines_is_dropped_and_the_region_kept(exported: Export) -> None:
    regions = [{"box": (0, 0, 50, 50), "born": 1, "text": "made up"}]
    _, page, tree = exported(regions)
    assert (tree["text"], tree["blank"], len(tree["regions"])) == ([], True, 1)
    assert '<TextRegion id="region0"' in page


def test_lines_beside_regions_share_a_region_that_is_the_page(exported: Export) -> None:
    regions = [
        line((0, 0, 50, 10), "a"),
        {"box": (0, 20, 50, 50), "regions": [line((0, 0, 9, 9), "b")]},
        line((0, 60, 50, 70), "c"),
    ]
    _, _, tree = exported(regions)
    assert [[said["text"] for said in region["lines"]] for region in tree["regions"]] == [["a", "c"], ["b"]]


def test_points_without_extent_become_a_pixel_within_their_parent(exported: Export) -> None:
    regions = [{"box": (10, 10, 60, 60), "regions": [{"points": [(3, 4), (3, 4)], "text": "dot"}]}]
    _, _, tree = exported(regions)
    assert tree["regions"][0]["lines"][0]["polygon"] == [[13, 14], [14, 14], [14, 15], [13, 15]]
