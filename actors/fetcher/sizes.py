"""Which URLs of an image service are asked for, and in which order (batchpod/README.md, section 5, Fetching).

Pure text: IIIF parameters are appended to what the manifest has, byte for byte; nothing is parsed, joined or
encoded, since a base may itself be a query string or hold raw or doubly encoded letters. When to go on to the
next URL is the downloader's:

1. `page.url` (made by `first_url`);
2. answered 400, 403, 404 or 501: each of `fallbacks(page)`, once;
3. those answered 404 too, or `page.level0`: `info_url(page)`, and of its body `sized_from_info`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Protocol

from actors.fetcher.jsonld import as_list, parse, pixels
from actors.fetcher.services import ImageApi, ImageService, api_version
from actors.redact import credentials_only

FALLBACK_STATUSES = frozenset({400, 403, 404, 501})
"""Answers to a size that the server may not have, rather than to an image that it may not have."""

_IIIF_TAIL = re.compile(
    r"(?P<region>/(?:full|square|(?:pct:)?[\d.]+,[\d.]+,[\d.]+,[\d.]+)/)"
    r"(?P<size>(?:\^?(?:max|full|pct:[\d.]+|!?\d*,\d*)))"
    r"(?P<rest>/!?[\d.]+/[a-z]+\.[a-z0-9]+(?:[?#].*)?)$",
    re.ASCII | re.DOTALL,
)


class Served(Protocol):
    """The part of a page that its sizes depend on."""

    @property
    def url(self) -> str: ...
    @property
    def service(self) -> str | None: ...
    @property
    def api(self) -> ImageApi: ...


def first_url(service: ImageService, canvas_width: int | None, max_width: int) -> str:
    """The image at `max_width`, or as it is when the canvas is known (not None) to be no wider."""
    if canvas_width is not None and canvas_width <= max_width:
        return largest_url(service)
    return _image_url(service.base, f"{max_width},", service.api)


def largest_url(service: ImageService) -> str:
    """The whole image at the service's largest size: `max`, which Image API 1 calls `full`."""
    return _image_url(service.base, "full" if service.api == 1 else "max", service.api)


def fallbacks(page: Served) -> list[str]:
    """What to try, each once, after `page.url` was refused: `max`, then `full`; none for a page without a
    service.

    Image API 1 has no `max`, and Image API 2.0 only has `full`, so `max` as the first URL falls back as well.
    """
    if page.service is None:
        return []
    sizes = ("full",) if page.api == 1 else ("max", "full")
    urls = (_image_url(page.service, size, page.api) for size in sizes)
    return [url for url in urls if url != page.url]


def info_url(page: Served) -> str | None:
    """Where the service describes itself; None for a page without a service."""
    return None if page.service is None else f"{page.service}/info.json"


def sized_from_info(page: Served, info: bytes, max_width: int) -> str | None:
    """The smallest size listed in an info.json that is at least `max_width` wide, else the largest, by its
    exact `w,h`.

    The version that the service gives itself decides on the name of the quality. None when no size is listed,
    the body is not such a document, or the page has no service.
    """
    try:
        document = parse(info)
    except ValueError:
        return None
    if page.service is None or not isinstance(document, dict):
        return None
    sizes = sorted(filter(None, map(_listed_size, as_list(document.get("sizes")))))
    if not sizes:
        return None
    width, height = next((size for size in sizes if size[0] >= max_width), sizes[-1])
    return _image_url(page.service, f"{width},{height}", api_version(document) or page.api)


def cache_identity(page_url: str) -> str:
    """sha256 (hex) of an image URL with its IIIF size, if it has one, set to `max`, and its credentials
    removed.

    Image caches of the same volume at different widths share their entries (batchpod/README.md, section 8).
    """
    unsized = _IIIF_TAIL.sub(r"\g<region>max\g<rest>", page_url)
    return hashlib.sha256(credentials_only(unsized).encode("utf-8", "surrogatepass")).hexdigest()


def _image_url(base: str, size: str, api: ImageApi) -> str:
    return f"{base}/full/{size}/0/{'native' if api == 1 else 'default'}.jpg"


def _listed_size(size: Any) -> tuple[int, int] | None:
    if not isinstance(size, dict):
        return None
    width, height = pixels(size.get("width")), pixels(size.get("height"))
    return (width, height) if width and height else None
