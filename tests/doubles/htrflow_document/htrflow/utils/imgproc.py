"""Cutting regions out of images."""

from PIL import Image

from htrflow.utils.geometry import Polygon, polygon2mask


def polygon_mask(image: Image.Image, polygon: Polygon) -> Image.Image:
    """What lies in the polygon's box, white outside the polygon."""
    box = polygon.bbox
    cut = image.crop(tuple(box))
    mask = Image.fromarray(polygon2mask(polygon.move(-box.p1), (box.height, box.width)))
    return Image.composite(cut, Image.new("RGB", cut.size, "white"), mask)
