"""A page's image over shared memory does what an ordinary PIL image does."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from actors.gpu.pixels import PageImage, pixels_at
from tests.gpu_process import picture

RGB = picture(3, 40, 50)
RGB.flags.writeable = False
ORDINARY = Image.fromarray(RGB)


@pytest.mark.parametrize(
    "box",
    [
        (0, 0, 10, 10), (-5, -5, 10, 10), (30, 40, 60, 70), (100, 100, 110, 120), (-20, -20, -10, -5),
        (5, 5, 5, 5), (0.6, 1.4, 9.5, 10.5), (-3, 10, 60, 20), None,
    ],
)  # fmt: skip
def test_a_crop_is_the_same_also_beyond_the_page(box: Any) -> None:
    mine, ordinary = PageImage(RGB).crop(box), ORDINARY.crop(box)
    assert mine.size == ordinary.size
    assert mine.tobytes() == ordinary.tobytes()


@pytest.mark.parametrize("box", [(9, 0, 3, 5), (0, 9, 5, 3)])
def test_a_crop_of_a_box_turned_inside_out_raises_as_an_ordinary_one(box: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="less than"):
        ORDINARY.crop(box)
    with pytest.raises(ValueError, match="less than"):
        PageImage(RGB).crop(box)


@pytest.mark.parametrize(
    "use",
    [
        lambda i: i.resize((11, 13)), lambda i: i.convert("L"), lambda i: i.convert("RGB"),
        lambda i: i.rotate(90), lambda i: i.copy(), lambda i: i.transpose(Image.Transpose.ROTATE_90),
        ImageOps.exif_transpose, ImageOps.invert,
        lambda i: Image.composite(i, Image.new("RGB", i.size), Image.new("L", i.size, 99)),
        lambda i: Image.fromarray(np.asarray(i)), lambda i: i.split()[1],
    ],
)  # fmt: skip
def test_whatever_htrflow_and_its_models_do_with_an_image_gives_the_same(
    use: Callable[[Image.Image], Image.Image],
) -> None:
    assert use(PageImage(RGB)).tobytes() == use(ORDINARY).tobytes()


def test_pixel_access_and_saving_work() -> None:
    page = PageImage(RGB)
    assert page.load()[3, 4] == ORDINARY.load()[3, 4]  # type: ignore[index]
    saved = io.BytesIO()
    PageImage(RGB).save(saved, "PNG")
    assert Image.open(saved).tobytes() == ORDINARY.tobytes()


def test_as_an_array_it_is_the_block_itself() -> None:
    assert np.shares_memory(np.asarray(PageImage(RGB)), RGB)
    assert not np.asarray(PageImage(RGB)).flags.writeable
    assert np.shares_memory(np.asarray(PageImage(RGB).copy()), RGB)


def test_writing_into_a_copy_changes_neither_the_page_nor_the_block() -> None:
    page = PageImage(RGB)
    other = page.copy()
    other.putpixel((0, 0), (1, 2, 3))
    assert other.getpixel((0, 0)) == tuple(np.asarray(other)[0, 0]) == (1, 2, 3)
    assert page.tobytes() == ORDINARY.tobytes()


@pytest.mark.parametrize("use", [np.asarray, lambda i: i.crop((0, 0, 1, 1)), lambda i: i.tobytes()])
def test_a_closed_page_lets_go_of_the_block_and_says_so(use: Callable[[Image.Image], Any]) -> None:
    page = PageImage(RGB)
    page.close()
    with pytest.raises(ValueError, match="closed image"):
        use(page)


def test_a_block_outside_the_arena_is_refused() -> None:
    with pytest.raises(ValueError, match="outside the arena"):
        pixels_at(memoryview(bytes(100)), 50, 5, 4)
