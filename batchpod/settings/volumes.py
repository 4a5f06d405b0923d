"""volumes.txt: one volume a line, `<id>` TAB `<source>` (batchpod/README.md, section 9).

Owns the file's form. Which line is a run's own, and which variables it stands for, is config.py's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from typing import Any

from batchpod.settings.environment import IDENTIFIER, URL, URLS, Kind, Refused, shown

IMAGES_PREFIX = "images:"


class VolumeError(Exception):
    """The file gives no volume for an index; the text is a sentence that names the index."""


@dataclass(frozen=True, slots=True)
class Volume:
    """`manifest_url` or `images` is set."""

    ref: str
    manifest_url: str | None
    images: tuple[str, ...]


def read_volume(path: str, index: int) -> Volume:
    """The volume of `index`, which counts lines from 0.

    Raises:
        VolumeError: the file cannot be read, has no such line, or the line is not a volume.
    """
    try:
        with open(path, "rb") as lines:
            line = next(islice(lines, index, None), b"").removesuffix(b"\n").removesuffix(b"\r")
            more = any(later.strip() for later in lines) if not line.strip() else True
    except OSError as e:
        reason = e.strerror or type(e).__name__
        raise VolumeError(f"index {index}: {shown(os.fspath(path))} cannot be read: {reason}") from e
    if not line.strip() and not more:
        raise VolumeError(f"no volume for index {index}")
    try:
        text = line.decode("utf-8-sig" if index == 0 else "utf-8")
    except UnicodeDecodeError as e:
        raise VolumeError(f"index {index}: line {index + 1} is not UTF-8") from e
    return parse(text, index)


def parse(line: str, index: int) -> Volume:
    """One line, without its end.

    Raises:
        VolumeError: no TAB, an id or a source of the wrong form.
    """
    where = f"index {index}: line {index + 1}"
    ref, tab, source = line.partition("\t")
    if not tab:
        raise VolumeError(f"{where} has no TAB: expected <id> TAB <source>")
    source = source.strip(" ")
    ref = _checked(where, "the id", IDENTIFIER, ref)
    if source.startswith(IMAGES_PREFIX):
        images = _checked(where, "the images", URLS, source.removeprefix(IMAGES_PREFIX))
        return Volume(ref, None, images)
    return Volume(ref, _checked(where, "the manifest URL", URL, source), ())


def _checked(where: str, what: str, kind: Kind, text: str) -> Any:
    try:
        return kind.parse(text)
    except Refused as e:
        raise VolumeError(f"{where}: {what} {shown(str(e)) or 'is missing'}: expected {kind.expected}") from e
