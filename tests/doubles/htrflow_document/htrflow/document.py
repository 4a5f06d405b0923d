"""The document: a tree of regions, each with a polygon relative to its parent and perhaps a transcription."""

import os
from collections.abc import Iterator
from typing import Any

from PIL import Image

from htrflow.utils.geometry import Bbox, Polygon
from htrflow.utils.imgproc import polygon_mask


class Text:
    def __init__(self, text: str, confidence: float | None = None) -> None:
        self.text, self.confidence = text, confidence

    def attach(self, region: "Region") -> None:
        region.transcription.append(self)


class Region:
    def __init__(
        self,
        polygon: Polygon,
        regions: "list[Region] | None" = None,
        transcription: list[Text] | None = None,
        **annotations: Any,
    ) -> None:
        self.polygon, self.annotations = polygon, annotations
        self.regions, self.transcription = regions or [], transcription or []

    def attach(self, region: "Region") -> None:
        region.regions.append(self)

    def is_leaf(self) -> bool:
        return not self.regions

    def traverse(self) -> "list[Region]":
        return [self, *(node for child in self.regions for node in child.traverse())]

    def leaves(self) -> "list[Region]":
        return [node for node in self.traverse() if node.is_leaf()]


class Document(Region):
    """A page in a file, which is opened and decoded each time its image is asked for."""

    def __init__(self, image_path: str) -> None:
        self._image_path = image_path
        self.image_name = os.path.splitext(os.path.basename(image_path))[0]
        super().__init__(Bbox(0, 0, *self.image.size).polygon())

    @property
    def image(self) -> Image.Image:
        return Image.open(self._image_path).convert("RGB")


class ImageLoader:
    """The images of a document's leaves, cut out of their parents' and white outside the polygon."""

    def __init__(self, page: Document) -> None:
        self.page = page

    def __iter__(self) -> Iterator[tuple[Region, Image.Image]]:
        yield from self._below(self.page, self.page.image)

    def _below(self, node: Region, image: Image.Image) -> Iterator[tuple[Region, Image.Image]]:
        if node.is_leaf():
            yield node, image
        for child in node.regions:
            yield from self._below(child, polygon_mask(image, child.polygon))
