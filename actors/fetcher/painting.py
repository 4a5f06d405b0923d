"""Which image a canvas paints, where the manifest leaves room (batchpod/README.md, section 5, Fetching).

The first painting annotation that paints an image; of a Choice its default, else its first image; of a
SpecificResource its source; of a list its first image. Selectors, targets and opacity are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from actors.fetcher.jsonld import as_list, identifier, is_http_url, pixels, strings, type_names, types
from actors.fetcher.labels import language_map
from actors.fetcher.services import ImageService, image_service, published_services
from actors.fetcher.sizes import largest_url

_IMAGE = {"image", "stillimage"}
_GROUPS = {"choice", "alternate", "composite", "list", "independents"}
"""Bodies made of bodies: a Choice, and the Web Annotation sets that are read as one."""
_NOT_IMAGES = {
    "audio", "sound", "video", "movingimage", "dataset", "model", "physicalobject", "text", "textualbody",
    "contentastext", "collection", "manifest", "canvas", "scene", "timeline", "annotation", "annotationpage",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Image:
    """What one canvas paints: `url` is the body's own id (may be empty with a service)."""

    url: str
    service: ImageService | None
    node: dict[str, Any]

    def body(self) -> dict[str, Any]:
        """The painting body in Presentation 3 form, whatever the source's version; its services stay."""
        node = self.node
        url = largest_url(self.service) if self.service and not is_http_url(self.url) else self.url
        body: dict[str, Any] = {"id": url, "type": "Image"}
        if formats := [f for f in strings(node.get("format")) if "/" in f]:
            body["format"] = formats[0]
        width, height = pixels(node.get("width")), pixels(node.get("height"))
        if width and height:
            body["width"], body["height"] = width, height
        if label := language_map(node.get("label")):
            body["label"] = label
        if services := published_services(node.get("service")):
            body["service"] = services
        return body


@dataclass(frozen=True, slots=True)
class Painting:
    """`image` is the one taken, None for a canvas without one; `images` counts the annotations that paint an
    image; `others` names what else is painted.
    """

    image: Image | None
    images: int
    others: tuple[str, ...]


def painting(canvas: Any) -> Painting:
    """What the canvas paints; a value that is no object paints nothing."""
    found = [list(_images(body)) for body in _bodies(canvas)]
    images = [image for candidates in found for image in candidates if isinstance(image, Image)]
    others = [image for candidates in found for image in candidates if isinstance(image, str)]
    count = sum(any(isinstance(image, Image) for image in candidates) for candidates in found)
    return Painting(images[0] if images else None, count, tuple(dict.fromkeys(others)))


def _bodies(canvas: Any) -> Iterator[Any]:
    """The body of each painting annotation, in order: Presentation 2 `images`, 3 and 4 `items`, 3's drafts
    `content`.

    Everything in `images` paints, whatever its motivation says; on an annotation page only what is not said
    to do something else does.
    """
    if not isinstance(canvas, dict):
        return
    for annotation in as_list(canvas.get("images")):
        if isinstance(annotation, dict):
            yield _body(annotation)
    for page in [*as_list(canvas.get("items")), *as_list(canvas.get("content"))]:
        if isinstance(page, dict):
            bare = "body" in page or "resource" in page
            for annotation in [page] if bare else as_list(page.get("items")):
                if isinstance(annotation, dict) and _paints(annotation):
                    yield _body(annotation)


def _body(annotation: dict[str, Any]) -> Any:
    return annotation["body"] if "body" in annotation else annotation.get("resource")


def _paints(annotation: dict[str, Any]) -> bool:
    motivations = [m for m in strings(annotation.get("motivation")) if m.strip()]
    return not motivations or any(m.strip().lower().endswith("painting") for m in motivations)


def _images(body: Any) -> Iterator[Image | str]:
    """The images a body offers, the preferred one first, and for anything else the name of what it is."""
    if isinstance(body, list):
        for item in body:
            yield from _images(item)
    elif isinstance(body, str):
        yield Image(body, None, {}) if is_http_url(body) else "text"
    elif isinstance(body, dict):
        yield from _images_of_node(body)


def _images_of_node(node: dict[str, Any]) -> Iterator[Image | str]:
    named = set(types(node))
    alternatives = [key for key in ("default", "item", "items") if node.get(key)]
    if named & _GROUPS or (not named and alternatives):
        for key in alternatives:
            # Presentation 2 writes "no default" as the string rdf:nil.
            yield from _images([a for a in as_list(node[key]) if a != "rdf:nil"])
    elif "specificresource" in named or (not named and ("source" in node or "full" in node)):
        yield from _images(node["source"] if "source" in node else node.get("full"))
    else:
        yield _image(node, named)


def _image(node: dict[str, Any], named: set[str]) -> Image | str:
    formats = strings(node.get("format"))
    service = image_service(node.get("service"))
    by_format = any(name.lower().startswith("image/") for name in formats)
    says_image = bool(named & _IMAGE) or service is not None or by_format
    untyped = not named and not any(formats)
    if named & _NOT_IMAGES or not (says_image or untyped):
        return ", ".join([*type_names(node), *([] if named else [f"untyped {formats[0]}"])]) or "untyped"
    url = identifier(node)
    return Image(url, service, node) if url or service else "an image without an id"
