"""The folder as a volume: its pages, their sizes, and the images an Image API server would make of them."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image, ImageOps

SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".gif", ".bmp", ".webp", ".jp2", ".j2k", ".bin")


@dataclass(frozen=True, slots=True)
class Page:
    """Page `number` (from 1) shows `file`; `name` is its id in URLs."""

    number: int
    name: str
    file: Path


class Folder:
    """The pages of a folder, in name order; with `count` they are repeated or cut to that many."""

    def __init__(self, folder: Path, count: int | None) -> None:
        files = sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES)
        if not files:
            raise FileNotFoundError(f"{folder} holds no images")
        wanted = len(files) if count is None else count
        self.pages: Sequence[Page] = [
            Page(n + 1, f.name if n < len(files) else f"{f.stem}-{n + 1}{f.suffix}", f)
            for n in range(wanted)
            for f in (files[n % len(files)],)
        ]
        self.by_name = {p.name: p for p in self.pages}
        self._sizes: dict[Path, tuple[int, int] | None] = {}
        self._made: dict[tuple[Path, int], bytes] = {}
        self._lock = threading.Lock()

    def size(self, page: Page) -> tuple[int, int] | None:
        """Upright width and height; None where Pillow cannot tell."""
        if page.file not in self._sizes:
            try:
                with Image.open(page.file) as image:
                    turned = image.getexif().get(0x0112, 1) >= 5
                    self._sizes[page.file] = image.size[::-1] if turned else image.size
            except (OSError, SyntaxError, ValueError):
                self._sizes[page.file] = None
        return self._sizes[page.file]

    def jpeg(self, page: Page, width: int | None) -> bytes:
        """The page as JPEG, at most `width` wide; a JPEG asked whole, or what is no image, is the file itself."""
        size = self.size(page)
        if size is None or (page.file.suffix.lower() in (".jpg", ".jpeg") and (width is None or width >= size[0])):
            return page.file.read_bytes()
        target = min(width or size[0], size[0])
        with self._lock:
            key = (page.file, target)
            if key not in self._made:
                self._made[key] = _made(page.file, target, size)
            return self._made[key]


def _made(file: Path, width: int, size: tuple[int, int]) -> bytes:
    with Image.open(file) as image:
        upright = _eight_bits(ImageOps.exif_transpose(image)).convert("RGB")
    if width != size[0]:
        upright = upright.resize((width, max(1, round(size[1] * width / size[0]))))
    out = io.BytesIO()
    upright.save(out, "JPEG", quality=90)
    return out.getvalue()


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey scaled to 8 bits: Pillow's own conversion would clip it to white."""
    if not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def sizes(width: int, height: int) -> list[dict[str, int]]:
    """What a level 0 service lists: the whole, a half, a quarter."""
    return [{"width": max(1, width // n), "height": max(1, height // n)} for n in (4, 2, 1)]


def manifest3(folder: Folder, base: str, url: str, *, service: bool, level: int) -> dict[str, Any]:
    """A Presentation 3 manifest."""
    items = []
    for page in folder.pages:
        canvas = f"{base}/canvas/{page.number}"
        dimensions = _dimensions(folder, page)
        body: dict[str, Any] = {
            "id": _image(base, page, service),
            "type": "Image",
            "format": "image/jpeg",
            **dimensions,
        }
        if service:
            body["service"] = [{"id": _service(base, page), "type": "ImageService3", "profile": f"level{level}"}]
        annotation = {
            "id": f"{canvas}/annotation", "type": "Annotation", "motivation": "painting", "target": canvas,
            "body": body
        }  # fmt: skip
        items.append({
            "id": canvas, "type": "Canvas", "label": {"none": [page.file.stem]}, **dimensions,
            "items": [{"id": f"{canvas}/page", "type": "AnnotationPage", "items": [annotation]}],
        })  # fmt: skip
    return {
        "@context": "http://iiif.io/api/presentation/3/context.json", "id": url, "type": "Manifest",
        "label": {"none": ["A volume"]}, "items": items,
    }  # fmt: skip


def manifest2(folder: Folder, base: str, url: str, *, service: bool, level: int) -> dict[str, Any]:
    """A Presentation 2 manifest."""
    canvases = []
    for page in folder.pages:
        canvas = f"{base}/canvas/{page.number}"
        dimensions = _dimensions(folder, page)
        resource: dict[str, Any] = {"@id": _image(base, page, service), "@type": "dctypes:Image", **dimensions}
        if service:
            resource["service"] = {
                "@context": "http://iiif.io/api/image/2/context.json", "@id": _service(base, page),
                "profile": f"http://iiif.io/api/image/2/level{level}.json",
            }  # fmt: skip
        image = {"@type": "oa:Annotation", "motivation": "sc:painting", "on": canvas, "resource": resource}
        canvases.append({"@id": canvas, "@type": "sc:Canvas", "label": page.file.stem, **dimensions, "images": [image]})
    return {
        "@context": "http://iiif.io/api/presentation/2/context.json", "@id": url, "@type": "sc:Manifest",
        "label": "A volume", "sequences": [{"@type": "sc:Sequence", "canvases": canvases}],
    }  # fmt: skip


def info(folder: Folder, base: str, page: Page, level: int) -> dict[str, Any]:
    """The page's info.json (Image API 3)."""
    width, height = folder.size(page) or (1, 1)
    return {
        "@context": "http://iiif.io/api/image/3/context.json", "id": _service(base, page), "type":
        "ImageService3", "protocol": "http://iiif.io/api/image", "profile": f"level{level}", "width": width,
        "height": height, "sizes": sizes(width, height),
    }  # fmt: skip


def _dimensions(folder: Folder, page: Page) -> dict[str, int]:
    size = folder.size(page)
    return {} if size is None else {"width": size[0], "height": size[1]}


def _service(base: str, page: Page) -> str:
    return f"{base}/iiif/{quote(page.name)}"


def _image(base: str, page: Page, service: bool) -> str:
    return f"{_service(base, page)}/full/max/0/default.jpg" if service else f"{base}/files/{quote(page.name)}"
