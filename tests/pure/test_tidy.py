"""What values become before they are exported."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from actors.gpu.tidy import clean_confidence, clean_label, clean_polygon, clean_text, extent

sizes = st.integers(1, 5000)
numbers = st.floats(-1e6, 1e6) | st.integers(-9000, 9000) | st.sampled_from([math.nan, math.inf, -math.inf])


@given(st.text())
def test_any_text_becomes_one_that_xml_takes_and_gives_back(text: str) -> None:
    clean = clean_text(text)
    element = etree.Element("a", CONTENT=clean)
    element.text = clean
    back = etree.fromstring(etree.tostring(element))
    assert (back.text or "") == clean == back.get("CONTENT")


def test_only_what_is_forbidden_goes() -> None:
    assert clean_text("a\x00b\x0bc\ud800d\ufffee\tf\r\ng åäö 😀 <&>\u0085") == "abcde f g åäö 😀 <&>\u0085"


@pytest.mark.parametrize(
    ("given_", "clean"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (None, 0.0),
        (math.nan, 0.0),
        (math.inf, 0.0),
        (1.0000001, 1.0),
        (-0.1, 0.0),
        ("x", 0.0),
    ],
)
def test_a_confidence_is_a_number_from_0_to_1(given_: object, clean: float) -> None:
    assert clean_confidence(given_) == clean


@given(st.lists(st.tuples(numbers, numbers), max_size=9), sizes, sizes)
def test_any_points_become_a_polygon_on_the_page(points: list[tuple[float, float]], width: int, height: int) -> None:
    clean = clean_polygon(points, width, height)
    (left, right), (top, bottom) = extent(clean)
    assert len(set(clean)) >= 3
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert all(type(value) is int for point in clean for value in point)
    assert clean_polygon(clean, width, height) == clean


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), min_size=3, max_size=9))
def test_a_polygon_that_is_fine_stays_as_it_is(points: list[tuple[int, int]]) -> None:
    (left, right), (top, bottom) = extent(points)
    if len(set(points)) >= 3 and left < right and top < bottom:
        assert clean_polygon(np.array(points, np.int32), 50, 40) == points


def test_nothing_left_of_a_polygon_is_a_pixel_at_the_corner_of_what_it_lies_in() -> None:
    assert clean_polygon([(math.nan, 1)], 100, 100, [(7, 9), (20, 9), (20, 30)]) == [
        (7, 9),
        (8, 9),
        (8, 10),
        (7, 10),
    ]


@pytest.mark.parametrize(
    ("label", "clean"),
    [("text_region", "text_region"), ("a b:å", "a_b__"), ("line1", "line1_"), ("", "region")],
)
def test_a_label_becomes_a_part_of_an_xml_name(label: str, clean: str) -> None:
    assert clean_label(label) == clean
