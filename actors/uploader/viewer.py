"""iiif.json: the volume as IIIF Presentation 3, its images at their origin and its text beside them.

A pure builder. The viewer matches on the shape of `seeAlso` and shows its text panel only with a search service, so
a stub of one is there (batchpod/README.md, section 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from actors.messages import page_name
from actors.redact import credentials_only
from actors.uploader.keys import Keys, url
from actors.uploader.volume import Page, Size, Volume

ALTO_PROFILE = "http://www.loc.gov/standards/alto/ns-v4#"
SEARCH_CONTEXT = "http://iiif.io/api/search/1/context.json"
SEARCH_PROFILE = "http://iiif.io/api/search/1/search"


def build(volume: Volume, keys: Keys, results_url: str, name: str, sizes: Mapping[int, Size]) -> bytes | None:
    """The manifest's JSON with a canvas for every page in `sizes` (its pixel size as processed), in page order.

    Credentials are taken out of every URL. None where no page has a size.
    """
    if not sizes:
        return None
    manifest_url = url(results_url, keys.viewer)
    base = url(results_url, keys.base)
    return orjson.dumps(
        {
            "@context": [SEARCH_CONTEXT, "http://iiif.io/api/presentation/3/context.json"],
            "id": manifest_url,
            "type": "Manifest",
            "label": _language_map(volume.label, name),
            "items": orjson.Fragment(_canvases(volume, keys, results_url, base, sizes)),
            "service": [{"@id": f"{base}/search", "@type": "SearchService1", "profile": SEARCH_PROFILE}],
        }
    )


def _canvases(volume: Volume, keys: Keys, results_url: str, base: str, sizes: Mapping[int, Size]) -> bytes:
    """A JSON list, written canvas by canvas: as objects, those of a long volume are many times as large."""
    text = bytearray(b"[")
    for page in volume.pages:
        if page.number in sizes:
            canvas = _canvas(page, base, url(results_url, keys.alto(page.number)), sizes[page.number])
            text += (b"," if len(text) > 1 else b"") + orjson.dumps(canvas)
    text += b"]"
    return bytes(text)


def without_credentials(value: Any) -> Any:
    """`value` (JSON) with credentials taken out of every string that is a URL."""
    if isinstance(value, dict):
        return {key: without_credentials(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_credentials(item) for item in value]
    if isinstance(value, str) and value[:8].lower().startswith(("http://", "https://")):
        return credentials_only(value)
    return value


def has_credentials(volume: Volume) -> bool:
    """Whether a URL that the viewer needs is published without the credentials that it has in the source."""
    return any(without_credentials(page.body) != page.body for page in volume.pages)


def _canvas(page: Page, base: str, alto_url: str, size: Size) -> dict[str, Any]:
    name = page_name(page.number)
    canvas = f"{base}/canvas/{name}"
    body = page.body if isinstance(page.body, dict) else {"id": page.url, "type": "Image"}
    return {
        "id": canvas,
        "type": "Canvas",
        "label": _language_map(page.label, name),
        "width": size[0],
        "height": size[1],
        "items": [
            {
                "id": f"{canvas}/page",
                "type": "AnnotationPage",
                "items": [
                    {
                        "id": f"{canvas}/image",
                        "type": "Annotation",
                        "motivation": "painting",
                        "body": without_credentials(body),
                        "target": canvas,
                    }
                ],
            }
        ],
        "seeAlso": [{"id": alto_url, "type": "Dataset", "format": "application/xml+alto", "profile": ALTO_PROFILE}],
    }


def _language_map(label: Any, fallback: str) -> Any:
    if isinstance(label, dict) and label:
        return label
    return {"none": [label if isinstance(label, str) and label else fallback]}
