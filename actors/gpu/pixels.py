"""A page's pixels in the arena, as an array and as a PIL image, without a copy.

`PageImage` is an ordinary `Image.Image` whose pixels stay in the arena until somebody needs PIL's own
storage (4 bytes a pixel, so a copy). Cropping, copying and turning into an array, which is nearly all that
htrflow and its models do with a page, need none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


def pixels_at(arena: memoryview, offset: int, width: int, height: int) -> Pixels:
    """The block's RGB pixels, (height, width, 3), read-only, in place.

    Raises:
        ValueError: the block lies outside the arena.
    """
    length = width * height * 3
    if offset < 0 or offset + length > len(arena):
        raise ValueError(f"a page of {width} x {height} pixels at {offset} lies outside the arena")
    return np.frombuffer(arena, np.uint8, length, offset).reshape(height, width, 3)


class PageImage(Image.Image):
    """An RGB image over an array (height, width, 3) that it does not own; `close` lets go of it.

    The array must not change while the image is open. Writing into the image makes it an ordinary one first.
    """

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        self._pixels: Pixels | None = pixels
        self._mode = "RGB"
        self._size = (pixels.shape[1], pixels.shape[0])

    @property
    def pixels(self) -> Pixels | None:
        """The array, not to be written to; None once the image is an ordinary one or closed."""
        return self._pixels

    def cut(self, left: int, top: int, right: int, bottom: int) -> Pixels:
        """The pixels in a box with an inside, black where it leaves the image; a view where it does not."""
        assert self._pixels is not None
        return _cut(self._pixels, left, top, right, bottom)

    @property
    def im(self) -> Any:
        """PIL's own storage, made when first asked for."""
        if self._pixels is not None:
            self._become_ordinary()
        return self._im

    @im.setter
    def im(self, core: Any) -> None:
        self._pixels = None
        self._im = core

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self._pixels is None:
            return dict(super().__array_interface__)
        return dict(self._pixels.__array_interface__)

    def load(self) -> Any:
        return _Access(self) if self._pixels is not None else super().load()

    def copy(self) -> Image.Image:
        return PageImage(self._pixels) if self._pixels is not None else super().copy()

    def crop(self, box: tuple[float, float, float, float] | None = None) -> Image.Image:
        """As PIL's: a new image, black where `box` leaves the page."""
        if self._pixels is None:
            return super().crop(box)
        if box is None:
            return self.copy()
        left, top, right, bottom = (round(edge) for edge in box)
        if right < left:
            raise ValueError("Coordinate 'right' is less than 'left'")
        if bottom < top:
            raise ValueError("Coordinate 'lower' is less than 'upper'")
        return _image_of(_cut(self._pixels, left, top, right, bottom))

    def close(self) -> None:
        """Let go of the array; any use of the image afterwards raises ValueError."""
        self._pixels = None
        super().close()

    def _become_ordinary(self) -> None:
        assert self._pixels is not None
        self._im = _image_of(self._pixels).im
        self._pixels = None


class _Access:
    """What `load()` returns while the pixels are in the arena: PIL's pixel access, obtained when first
    used."""

    def __init__(self, image: PageImage) -> None:
        self._image = image

    def __getitem__(self, xy: tuple[int, int]) -> Any:
        return self._image.im.pixel_access(self._image.readonly)[xy]

    def __setitem__(self, xy: tuple[int, int], color: Any) -> None:
        self._image.im.pixel_access(self._image.readonly)[xy] = color


def _cut(pixels: Pixels, left: int, top: int, right: int, bottom: int) -> Pixels:
    height, width = pixels.shape[:2]
    inside = pixels[max(top, 0) : max(min(bottom, height), 0), max(left, 0) : max(min(right, width), 0)]
    if left >= 0 and top >= 0 and right <= width and bottom <= height:
        return inside
    canvas = np.zeros((bottom - top, right - left, 3), np.uint8)
    y, x = max(top, 0) - top, max(left, 0) - left
    canvas[y : y + inside.shape[0], x : x + inside.shape[1]] = inside
    return canvas


def _image_of(pixels: Pixels) -> Image.Image:
    height, width = pixels.shape[:2]
    if not width or not height:
        return Image.new("RGB", (width, height))
    return Image.frombuffer("RGB", (width, height), np.ascontiguousarray(pixels), "raw", "RGB", 0, 1)
