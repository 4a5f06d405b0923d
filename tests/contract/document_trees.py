"""Crafted documents of the document API, tidied and exported: run in a process of its own, where the stand-
in is htrflow."""

from __future__ import annotations

import json
import math
from typing import Any


def export(regions: list[dict[str, Any]], segmentations: int = 2) -> tuple[str, str, dict[str, Any]]:
    """The ALTO, the PAGE and the sidecar of a page of 200 x 100 pixels.

    A region is {"box" | "points", "text"?, "confidence"?, "born"?, "regions"?}, places relative to its
    parent's.
    """
    from htrflow.document import Document, Region, Text
    from htrflow.serialization import AltoXML, PageXML
    from htrflow.utils.geometry import Bbox, Polygon
    from PIL import Image

    from actors.gpu.document_tidy import BORN, tidy
    from actors.gpu.exports import EscapingTemplate

    class Page(Document):  # type: ignore[misc]
        image = Image.new("RGB", (200, 100))

        def __init__(self) -> None:
            self.image_name = "0001"
            Region.__init__(self, Bbox(0, 0, 200, 100).polygon())

    def build(given: dict[str, Any]) -> Any:
        polygon = Bbox(*given["box"]).polygon() if "box" in given else Polygon(given["points"])
        region = Region(polygon, [build(child) for child in given.get("regions", [])], segmentation_confidence=math.nan)
        setattr(region, BORN, given.get("born", segmentations))
        if "text" in given:
            region.transcription = [Text(given["text"], given.get("confidence"))]
        return region

    page = Page()
    page.regions = [build(region) for region in regions]
    tree = tidy(page, 200, 100, segmentations)
    files = []
    for serializer in (AltoXML(), PageXML()):
        serializer.template = EscapingTemplate(serializer.template)
        files.append(serializer.serialize(page))
    return files[0], files[1], json.loads(tree.as_json())
