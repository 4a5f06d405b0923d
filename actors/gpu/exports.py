"""Turns a tidied page into files: htrflow's own serializers with escaping on, and all three files or none."""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from actors.gpu.tree import Tree
from actors.room import no_room

log = logging.getLogger(__name__)

PAGE_NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"


class WorkdirFull(Exception):
    """There is no room for the files of a page."""


@dataclass(frozen=True, slots=True)
class Exports:
    """One page's ALTO and PAGE as text, and the sidecar they are checked against."""

    alto: str
    page: str
    tree: Tree


class EscapingTemplate:
    """A serializer's template with autoescape on: htrflow writes word text and file names as they come.

    0.2.6 passes an escape function of its own to the template, which must then do nothing.
    """

    def __init__(self, template: Any) -> None:
        template.environment.autoescape = True
        if template.environment.cache is not None:
            template.environment.cache.clear()
        self._template = template.environment.get_template(template.name)
        self.name = template.name

    def render(self, **values: Any) -> str:
        if "xmlescape" in values:
            values["xmlescape"] = str
        return str(self._template.render(**values))


def empty_page(name: str, width: int, height: int) -> str:
    """A valid PAGE of a page on which nothing was found: 0.2.6 writes none for such a page."""
    now = datetime.now(UTC).isoformat()
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<PcGts xmlns="{PAGE_NAMESPACE}">\n'
        f"    <Metadata>\n        <Creator>{escape('htrflow')}</Creator>\n"
        f"        <Created>{now}</Created>\n        <LastChange>{now}</LastChange>\n    </Metadata>\n"
        f'    <Page imageFilename={quoteattr(name)} imageWidth="{width}" imageHeight="{height}"/>\n'
        "</PcGts>\n"
    )


def write(directory: Path, name: str, exports: Exports) -> int:
    """Write `<name>.page.xml`, `<name>.alto.xml` and `<name>.tree.json`; returns their total size in bytes.

    Raises:
        WorkdirFull: there is no room; what was written of them is removed.
        OSError: they cannot be written for another reason.
    """
    files = {
        f"{name}.page.xml": exports.page.encode("utf-8"),
        f"{name}.alto.xml": exports.alto.encode("utf-8"),
        f"{name}.tree.json": exports.tree.as_json(),
    }
    try:
        for file_name, content in files.items():
            (directory / file_name).write_bytes(content)
    except OSError as e:
        for file_name in files:
            with contextlib.suppress(OSError):
                (directory / file_name).unlink(missing_ok=True)
        if no_room(e):
            raise WorkdirFull(f"no room in {directory} for the files of page {name}: {e.strerror}") from e
        raise
    return sum(len(content) for content in files.values())


def remove_strays(directory: Path, name: str) -> None:
    """Remove what image steps wrote for page `name` into folders below `directory`, which is memory."""
    with os.scandir(directory) as entries:
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    for folder in folders:
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.stem == name or name in path.parent.relative_to(directory).parts:
                try:
                    path.rmdir() if path.is_dir() else path.unlink()
                except OSError as e:
                    log.warning("%s is left there: %s", path, e.strerror)
