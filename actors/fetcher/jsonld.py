"""Reads what manifests really hold where IIIF allows, or publishers write, several forms of one value.

Owns the encoding of a JSON body and the single-or-list, `id`-or-`@id` and `type`-or-`@type` habits. Knows
nothing of canvases, images or services. Nothing but `parse` raises, whatever the JSON value.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

_NUMBER = re.compile(r"\s*\d{1,12}(?:\.\d{1,12})?\s*", re.ASCII)
_LARGEST_PIXELS = 2**31
_HTTP_URL = re.compile(r"https?://[^/?#\s][^\x00-\x1f\x7f\ud800-\udfff]*", re.IGNORECASE)


def parse(body: bytes) -> Any:
    """The JSON value of a body in UTF-8, 16 or 32, with or without a byte order mark.

    Raises ValueError with the place of the fault. What JSON does not have (NaN, numbers beyond a double, lone
    surrogates, nesting beyond 1,024 levels) is refused, so that everything parsed can be written again.
    """
    encoding = json.detect_encoding(body)
    if encoding == "utf-8":
        return orjson.loads(body)
    return orjson.loads(body.decode(encoding))


def as_list(value: Any) -> list[Any]:
    """The value as a list: absent or null is empty, anything but a list stands alone."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def strings(*values: Any) -> list[str]:
    """Every string among the values and the lists among them."""
    return [item for value in values for item in as_list(value) if isinstance(item, str)]


def identifier(node: dict[str, Any]) -> str:
    """`id`, else `@id`; empty when neither is a string."""
    return next((node[key] for key in ("id", "@id") if isinstance(node.get(key), str)), "")


def types(node: dict[str, Any]) -> list[str]:
    """The bare lower-case class names of a node: `sc:Canvas` and `Canvas` both give `canvas`."""
    return [re.split(r"[:#/]", name)[-1].strip().lower() for name in type_names(node)]


def type_names(node: dict[str, Any]) -> list[str]:
    """The class names as they are written."""
    return strings(node.get("type")) or strings(node.get("@type"))


def pixels(value: Any) -> int | None:
    """A width or height, also from a numeric string or a fraction (rounded up); None where it is not known.

    Zero and 1 stand for "not known" in real manifests, so they are not known here either.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 < value < _LARGEST_PIXELS:
        return None
    return math.ceil(value)


def is_http_url(url: str) -> bool:
    """Whether it can be asked for at all: http or https, a host, no control characters. Spaces are let
    through.
    """
    return _HTTP_URL.fullmatch(url) is not None


def nested_within(value: Any, levels: int) -> bool:
    """Whether the value nests at most `levels` deep (a scalar is 0 deep)."""
    if isinstance(value, dict):
        return levels > 0 and all(nested_within(item, levels - 1) for item in value.values())
    if isinstance(value, list):
        return levels > 0 and all(nested_within(item, levels - 1) for item in value)
    return True
