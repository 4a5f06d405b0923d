"""A region cut out of its parent's pixels, as an array: the same picture as htrflow's own cut, at a fifth of the cost.

htrflow cuts into PIL's storage (4 bytes a pixel), composes two whole images, and its models turn the outcome into an
array again. A page's regions are cut out once for every model, so this is most of what a page costs beside its models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PIL import Image

from actors.gpu.pixels import PageImage

WHITE = 255
Cut = Callable[[Image.Image, Any], Image.Image]


def over_arrays(original: Cut, polygon2mask: Callable[[Any, tuple[int, int]], Any]) -> Cut:
    """`polygon_mask(image, polygon)` of htrflow: what lies in the polygon's box, white outside the polygon, black
    outside the image. Images that are not arrays, and boxes without an inside, go to the original. `polygon2mask` is
    htrflow's: 0 outside."""

    def cut(image: Image.Image, polygon: Any) -> Image.Image:
        box = polygon.bbox
        if not isinstance(image, PageImage) or image.pixels is None or box.width <= 0 or box.height <= 0:
            return original(image, polygon)
        pixels = image.cut(*box).copy()
        mask = polygon2mask(polygon.move(-box.p1), (box.height, box.width))
        if not mask.all():
            pixels[mask == 0] = WHITE
        pixels.flags.writeable = False
        return PageImage(pixels)

    return cut
