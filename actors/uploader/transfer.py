"""One exported page: read, mend, check, stamp, store (batchpod/README.md, section 5).

Owns the order of these and what each failure costs; the formats' own rules are in `page.py` and `alto.py`. Asked
again for the same page (after a restart) it does the same again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from actors.messages import DEFERRED, FAILED, Upload, Uploaded, UploadFailed, page_name
from actors.redact import for_log
from actors.s3 import StoreError
from actors.uploader import alto, exportcheck, page, resume, stamp, validate
from actors.uploader.keys import XML, Keys
from actors.uploader.markup import BadExport, Element, Frame, parse, serialize
from actors.uploader.store import Store
from supervisor.wire import bounded

log = logging.getLogger(__name__)

_SUFFIXES = (".page.xml", ".alto.xml", ".tree.json")


@dataclass(frozen=True, slots=True)
class Documents:
    """A page's two files as they are published, and how many lines of text they hold."""

    page: bytes
    alto: bytes
    lines: int


class Transfer:
    """Stores the pages of one volume; its methods are called from several threads."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        made_by: stamp.Provenance,
        recipe: str | None,
        stopping: Callable[[], bool],
        step: Callable[[int, str], None],
    ) -> None:
        """`stopping()` is true once the run is ending without success: nothing is deleted from then on. `step` hears
        what is being done with a page."""
        self._store, self._keys, self._made_by, self._recipe = store, keys, made_by, recipe
        self._stopping, self._step = stopping, step

    def upload(self, asked: Upload, digest: str | None) -> Uploaded | UploadFailed:
        """The page's outcome; `digest` identifies its source. Its files stay until `discard`."""
        began = time.monotonic()
        try:
            self._step(asked.page, "check")
            documents = self._documents(asked)
            size = (asked.width, asked.height)
            carried = resume.metadata(digest or "", self._recipe, size)
            self._step(asked.page, "put PAGE")
            self._store.put(self._keys.page(asked.page), documents.page, XML)
            self._step(asked.page, "put ALTO")
            self._store.put(self._keys.alto(asked.page), documents.alto, XML, metadata=carried)
        except BadExport as e:
            return _failed(asked, FAILED, str(e), text_lost=e.text_lost)
        except FileNotFoundError as e:
            return _failed(asked, FAILED, f"the export is not whole: {Path(e.filename or '').name} is missing")
        except StoreError as e:
            self._delete_half(asked.page)
            return _failed(asked, DEFERRED, f"not stored: {e}", store=True)
        return Uploaded(asked.page, documents.lines, time.monotonic() - began)

    def _documents(self, asked: Upload) -> Documents:
        name = page_name(asked.page)
        page_file, alto_file, tree_file = (Path(asked.directory, name + suffix) for suffix in _SUFFIXES)
        tree = orjson.loads(tree_file.read_bytes())
        return prepare(name, page_file.read_bytes(), alto_file.read_bytes(), tree, self._made_by)

    def _delete_half(self, number: int) -> None:
        """Whatever of the pair is stored goes, the ALTO (which stands for the pair) first."""
        for key in (self._keys.alto(number), self._keys.page(number)):
            if self._stopping():
                return
            try:
                self._store.delete(key)
            except StoreError as e:  # The next run finds half a pair and does the page again.
                log.warning("page %s: its stored half stays: %s", page_name(number), e)
                return


def prepare(
    name: str, page_data: bytes, alto_data: bytes, tree: dict[str, Any], made_by: stamp.Provenance
) -> Documents:
    """Both files as they are to be published; `tree` is the page's sidecar. What is still wrong is logged.

    Raises:
        BadExport: a file is not well formed or not of its format, or holds none of the recognised text.
    """
    frame = Frame(int(tree["width"]), int(tree["height"]))
    page_root, alto_root = parse(page_data), parse(alto_data)
    if not page.version(page_root):
        raise BadExport(f"malformed XML: the PAGE file's root is {page_root.tag}")
    if not alto.is_alto(alto_root):
        raise BadExport(f"malformed XML: the ALTO file's root is {alto_root.tag}")
    alto.repair(alto_root, frame, page.repair(page_root, frame))
    text = [line for line in tree["text"] if line.strip()]
    exported = {"ALTO": alto.line_texts(alto_root), "PAGE XML": page.line_texts(page_root)}
    for kind, missing in exportcheck.missing_lines(text, exported).items():
        log.warning("page %s: the %s lacks %d of %d recognized lines", name, kind, missing, len(text))
    stamp.stamp(alto_root, made_by)
    _judge(name, "PAGE XML", page_root)
    _judge(name, "ALTO", alto_root)
    return Documents(serialize(page_root), serialize(alto_root), len(text))


def discard(asked: Upload) -> None:
    """Unlink the page's exported files, once its outcome has been told."""
    for suffix in _SUFFIXES:
        Path(asked.directory, page_name(asked.page) + suffix).unlink(missing_ok=True)


def _judge(name: str, kind: str, root: Element) -> None:
    error = validate.first_error(root)
    if error:
        log.warning("page %s: the %s is published and is not valid: %s", name, kind, error)


def _failed(asked: Upload, outcome: str, reason: str, *, store: bool = False, text_lost: bool = False) -> UploadFailed:
    return UploadFailed(asked.page, outcome, bounded(for_log(reason)), store, text_lost)
