"""Makes the page list and the manifest of an IMAGES volume from its list of image URLs (batchpod/README.md, section
3).

Owns the ids and names of its canvases. Each URL is asked for as it stands, so there is no image service and
no size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actors.fetcher.jsonld import is_http_url
from actors.fetcher.source import ManifestError, Page, Source
from actors.messages import page_name
from actors.redact import credentials_only, for_log, source_digest


def read_images(urls: Sequence[str], *, volume: str, max_pages: int) -> Source:
    """One page per URL, of the first `max_pages` (0: all). Raises ManifestError for a URL that is not
    http(s).
    """
    if not urls:
        raise ManifestError("the list of images is empty")
    for number, url in enumerate(urls, 1):
        if not is_http_url(url):
            raise ManifestError(f"image {number} of the list is not an http(s) URL: {for_log(url)[:300]}")
    pages = tuple(_page(volume, number, url) for number, url in enumerate(urls[: max_pages or None], 1))
    return Source(None, {"none": [volume]}, len(urls), pages)


def build_manifest(urls: Sequence[str], *, volume: str) -> dict[str, Any]:
    """The Presentation 3 manifest of the whole list, credentials removed from its URLs.

    Sizes are left out: nothing has been fetched yet.
    """
    return {
        "@context": "http://iiif.io/api/presentation/3/context.json",
        "id": f"{_base(volume)}/manifest",
        "type": "Manifest",
        "label": {"none": [volume]},
        "items": [_canvas(volume, number, credentials_only(url)) for number, url in enumerate(urls, 1)],
    }


def _page(volume: str, number: int, url: str) -> Page:
    return Page(
        url=url, service=None, api=2, level0=False,
        canvas_id=_canvas_id(volume, number), label=_label(number), width=None, height=None,
        body={"id": url, "type": "Image"}, digest=source_digest(url),
    )  # fmt: skip


def _canvas(volume: str, number: int, url: str) -> dict[str, Any]:
    canvas_id = _canvas_id(volume, number)
    annotation = {
        "id": f"{canvas_id}/painting/image",
        "type": "Annotation",
        "motivation": "painting",
        "body": {"id": url, "type": "Image"},
        "target": canvas_id,
    }
    page = {"id": f"{canvas_id}/painting", "type": "AnnotationPage", "items": [annotation]}
    return {"id": canvas_id, "type": "Canvas", "label": _label(number), "items": [page]}


def _canvas_id(volume: str, number: int) -> str:
    return f"{_base(volume)}/canvas/{page_name(number)}"


def _label(number: int) -> dict[str, list[str]]:
    return {"none": [page_name(number)]}


def _base(volume: str) -> str:
    """Presentation 3 wants http(s) ids; these name things that are served nowhere (RFC 2606, `.invalid`)."""
    return f"https://batchpod.invalid/{volume}"
