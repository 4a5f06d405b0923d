"""Finds the image service among the services of a painting body, and what may be asked of it.

Owns: what counts as an IIIF Image API service, its version, its base for URLs. Which URL is asked is
sizes.py's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from actors.fetcher.jsonld import as_list, identifier, is_http_url, nested_within, strings, types

ImageApi = Literal[1, 2, 3]

_TYPE = re.compile(r"imageservice([123]?)", re.ASCII)
_API_URI = re.compile(r"https?://iiif\.io/api/image/([123])(?![0-9])", re.ASCII)
_API_1_URI = re.compile(r"https?://library\.stanford\.edu/iiif/image-api")
_BARE_LEVEL = re.compile(r"level[012]", re.ASCII)
_PROTOCOL = re.compile(r"https?://iiif\.io/api/image/?")
_OTHER_SERVICE = re.compile(r"search|auth|autocomplete|text|probe|logout|token")
_DEEPEST_COPY = 32
"""Levels of a service that are copied into the published viewer manifest. Real ones have five; what is deeper
could not be written as JSON again.
"""


@dataclass(frozen=True, slots=True)
class ImageService:
    """`base` is what IIIF parameters are appended to, byte for byte as the manifest has it."""

    base: str
    api: ImageApi
    level0: bool


def image_service(services: Any) -> ImageService | None:
    """The first image service in a `service` value: an object, a list, or lists and services inside services.

    Search, authentication and text services, bare strings and services that do not say what they are, are
    none; nor is an image service without an http(s) id, which could not be asked.
    """
    for node in _walk(services):
        api = api_version(node)
        base = _base(identifier(node))
        if api is not None and is_http_url(base):
            return ImageService(base, api, _is_level0(node))
    return None


def published_services(services: Any) -> list[dict[str, Any]]:
    """The services as a Presentation 3 body may carry them: objects only, in order, unchanged but for one
    key.

    An older image service that names no type gets the `@type` that version 3 requires of it (Presentation 3,
    service).
    """
    return [_typed(node) for node in as_list(services) if isinstance(node, dict) and nested_within(node, _DEEPEST_COPY)]


def _typed(node: dict[str, Any]) -> dict[str, Any]:
    api = api_version(node)
    return node if types(node) or api is None else {**node, "@type": f"ImageService{api}"}


def _walk(services: Any) -> Iterator[dict[str, Any]]:
    """Every service object, level by level: one beside the body comes before one inside another service."""
    level = as_list(services)
    while level:
        deeper: list[Any] = []
        for node in level:
            if isinstance(node, list):
                deeper.extend(node)
            elif isinstance(node, dict):
                yield node
                deeper.extend(as_list(node.get("service")))
        level = deeper


def api_version(node: dict[str, Any]) -> ImageApi | None:
    """The Image API version that a service object, or an info.json, names; None when it is no image service.

    The type decides, then the context, then the profile: profiles that still say 1 beside a context of 2 are
    common.
    """
    named = types(node)
    for name in named:
        match = _TYPE.fullmatch(name)
        if match and match[1]:
            return _as_api(match[1])
    if any(_OTHER_SERVICE.search(name) for name in named):
        return None
    profiles = strings(node.get("profile"), node.get("conformsTo"))
    for uri in [*strings(node.get("@context")), *profiles]:
        if match := _API_URI.match(uri):
            return _as_api(match[1])
        if _API_1_URI.match(uri):
            return 1
    if any(_BARE_LEVEL.fullmatch(profile) for profile in profiles):
        return 3
    generic = any(_TYPE.fullmatch(name) for name in named)
    return 2 if generic or any(map(_PROTOCOL.fullmatch, strings(node.get("protocol")))) else None


def _as_api(digit: str) -> ImageApi:
    return 1 if digit == "1" else 2 if digit == "2" else 3


def _is_level0(node: dict[str, Any]) -> bool:
    return any("level0" in profile for profile in strings(node.get("profile"), node.get("conformsTo")))


def _base(service_id: str) -> str:
    return service_id.removesuffix("/info.json").removesuffix("/")
