"""A region cut out over arrays is the picture that htrflow's own cut gives."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from actors.gpu.masking import over_arrays
from actors.gpu.pixels import PageImage
from tests.gpu_process import DOUBLE, picture


def geometry() -> Any:
    """htrflow's own module where HTRFLOW_SRC is set, else the stand-in's. Read by path: what is installed may be the
    other API."""
    path = Path(os.environ.get("HTRFLOW_SRC") or DOUBLE) / "htrflow" / "utils" / "geometry.py"
    spec = importlib.util.spec_from_file_location("document_geometry", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_geometry = geometry()
Bbox, Polygon, polygon2mask = _geometry.Bbox, _geometry.Polygon, _geometry.polygon2mask
RGB = picture(4, 60, 90)
RGB.flags.writeable = False


def as_htrflow_does(image: Image.Image, polygon: Any) -> Image.Image:
    """Crop, then compose with white by the polygon's mask (htrflow.utils.imgproc.polygon_mask)."""
    box = polygon.bbox
    cut = image.crop(tuple(box))
    mask = Image.fromarray(polygon2mask(polygon.move(-box.p1), (box.height, box.width)))
    return Image.composite(cut, Image.new("RGB", cut.size, "white"), mask)


def untouched(image: Image.Image, polygon: Any) -> Image.Image:
    raise AssertionError("htrflow's own cut was asked")


POLYGONS = [
    Bbox(0, 0, 90, 60).polygon(),
    Bbox(10, 5, 40, 50).polygon(),
    Polygon([(10, 5), (70, 12), (60, 55), (20, 40)]),
    Polygon([(30, 5), (31, 58), (3, 30)]),
    Polygon([(-9, -7), (60, 3), (120, 80), (-4, 40)]),
    Polygon([(200, 200), (220, 210), (210, 230)]),
]


@pytest.mark.parametrize("polygon", POLYGONS)
def test_a_region_is_cut_out_of_an_array_as_htrflow_cuts_it(polygon: Any) -> None:
    mine = over_arrays(untouched, polygon2mask)(PageImage(RGB), polygon)
    expected = as_htrflow_does(Image.fromarray(RGB), polygon)
    assert mine.size == expected.size
    assert np.array_equal(np.asarray(mine), np.asarray(expected))


def test_a_line_is_cut_out_of_its_region_as_htrflow_cuts_it() -> None:
    region, line = POLYGONS[2], Polygon([(3, 3), (50, 8), (40, 30), (5, 20)])
    cut = over_arrays(untouched, polygon2mask)
    mine = cut(cut(PageImage(RGB), region), line)
    expected = as_htrflow_does(as_htrflow_does(Image.fromarray(RGB), region), line)
    assert np.array_equal(np.asarray(mine), np.asarray(expected))
    assert mine.resize((20, 9)).tobytes() == expected.resize((20, 9)).tobytes()


def test_the_page_keeps_its_pixels_and_a_model_cannot_write_into_a_region() -> None:
    before = RGB.copy()
    region = over_arrays(untouched, polygon2mask)(PageImage(RGB), POLYGONS[3])
    assert np.array_equal(RGB, before)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(region)[0, 0] = 0


@pytest.mark.parametrize("image", [Image.fromarray(RGB), PageImage(RGB)])
def test_other_images_and_empty_boxes_are_left_to_htrflow(image: Image.Image) -> None:
    polygon = POLYGONS[1] if not isinstance(image, PageImage) else Polygon([(5, 5), (5, 9), (5, 5)])
    asked = []
    over_arrays(lambda *given: asked.append(given) or image, polygon2mask)(image, polygon)
    assert asked == [(image, polygon)]
