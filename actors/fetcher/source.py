"""The page list of a volume, as the fetcher keeps it and writes it to the workdir (pages.json).

Owns the shape of a page and of the file. How a manifest becomes pages is manifest.py's, how an image list
does imagelist.py's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from actors.fetcher.labels import LanguageMap
from actors.fetcher.services import ImageApi

NO_IMAGE = "canvas has no image"


class ManifestError(Exception):
    """The source can never give a page list, in a sentence for people, already redacted: always permanent."""


@dataclass(frozen=True, slots=True)
class Page:
    """One canvas.

    `url` is asked first, byte for byte; empty with `error`, and then so is `digest`. `service` is the image
    service's base (None: the image has only its URL, and `api` means nothing). `width` and `height` are the
    canvas's, None where it does not really say. `body` is the painting body in Presentation 3 form,
    credentials and all.
    """

    url: str
    service: str | None
    api: ImageApi
    level0: bool
    canvas_id: str
    label: LanguageMap
    width: int | None
    height: int | None
    body: dict[str, Any]
    digest: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A volume's pages: page N is `pages[N - 1]`; `total` counts them before MAX_PAGES.

    `source` is the manifest's URL with credentials as given (None for an image list). `notes` are lines for
    the run log about what the page list leaves out; they are not written to the file.
    """

    source: str | None
    label: LanguageMap
    total: int
    pages: tuple[Page, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """The bytes of pages.json."""
        return orjson.dumps({"source": self.source, "label": self.label, "total": self.total, "pages": self.pages})

    @classmethod
    def from_json(cls, body: bytes) -> Source:
        """What `to_json` wrote, without the notes."""
        fields = orjson.loads(body)
        pages = tuple(Page(**page) for page in fields["pages"])
        return cls(fields["source"], fields["label"], fields["total"], pages)
