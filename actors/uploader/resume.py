"""Which stored pages need no work, and clearing away those that do (batchpod/README.md, section 3, resume).

A page is done when both its files are stored, its source is the one that the manifest gives now, and no other
recipe made it. Reads objects one by one only where the previous manifest.json cannot stand for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import orjson

from actors.gpu.pipeline_file import PipelineError, recipe_digest
from actors.messages import page_name
from actors.redact import credentials_only
from actors.s3 import MissingObject, StoreError
from actors.uploader import alto
from actors.uploader.documents import FAILED, OK, SKIPPED
from actors.uploader.keys import Keys
from actors.uploader.markup import BadExport, parse
from actors.uploader.store import Store
from actors.uploader.volume import Done, Page, Size, as_size

log = logging.getLogger(__name__)

THREADS = 24
"""Requests at once: 10,000 pages at 30 ms each take a quarter of a minute."""
SOURCE, RECIPE, PAGE_SIZE = "source-digest", "recipe-digest", "page-size"
"""Metadata of every stored ALTO."""
_CLEARED_AT_ONCE = 200

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Listing:
    """What is stored: the keys under both prefixes, and when the newest of them was stored."""

    keys: frozenset[str]
    newest: datetime | None

    def has(self, keys: Keys, number: int) -> bool:
        """Whether both of the page's files are there."""
        return keys.page(number) in self.keys and keys.alto(number) in self.keys


@dataclass(frozen=True, slots=True)
class Previous:
    """An earlier run's manifest.json, and when it was stored. Whatever is not as expected reads as absent."""

    document: dict[str, Any]
    stored: datetime
    recipe: str | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "recipe", _recorded_recipe(self.document))

    def entry(self, number: int) -> dict[str, Any]:
        return _of(self._map("results"), page_name(number), dict) or {}

    def names(self) -> set[str]:
        return set(self._map("results"))

    def size(self, number: int) -> Size | None:
        pair = _of(self._map("page_sizes"), page_name(number), list) or []
        return as_size(*pair) if len(pair) == 2 else None

    def digest(self, number: int) -> str | None:
        return _of(self._map("page_source_digests"), page_name(number), str)

    def same_source(self, page: Page) -> bool:
        """By the recorded digest, else by the recorded URL (in which credentials do not count)."""
        if (digest := self.digest(page.number)) is not None:
            return digest == page.digest
        url = _of(self._map("page_sources"), page_name(page.number), str)
        return url is not None and credentials_only(url) == credentials_only(page.url)

    def _map(self, key: str) -> dict[str, Any]:
        return _of(self.document, key, dict) or {}


@dataclass(frozen=True, slots=True)
class Resume:
    """`done` by page number. `complete`: the stored manifest.json covers exactly these pages, with nothing to do."""

    done: dict[int, Done]
    previous: Previous | None
    complete: bool


def list_stored(store: Store, keys: Keys) -> Listing:
    """Both prefixes, whole. Raises StoreError."""
    entries = [*store.list(keys.pages), *store.list(keys.altos)]
    return Listing(frozenset(e.key for e in entries), max((e.modified for e in entries), default=None))


def find_done(store: Store, keys: Keys, pages: Iterable[Page], listing: Listing, recipe: str | None) -> Resume:
    """Which of `pages` are done under the recipe whose digest is `recipe`. Raises StoreError."""
    pages = list(pages)
    previous = _previous(store, keys)
    stored = [page for page in pages if page.digest and not page.error and listing.has(keys, page.number)]
    trusted = previous if previous and listing.newest and previous.stored > listing.newest else None
    recorded = {page.number: d for page in stored if trusted and (d := _recorded(trusted, page, recipe)) is not None}
    asked = [page for page in stored if page.number not in recorded]
    answers = _in_threads(lambda page: _asked(store, keys, page, previous, recipe), asked)
    verdicts = recorded | {page.number: answer for page, answer in zip(asked, answers, strict=True)}
    done = {number: verdict for number in sorted(verdicts) if isinstance(verdict := verdicts[number], Done)}
    others = sum(verdict is _OTHER_RECIPE for verdict in verdicts.values())
    if others:
        log.warning("%d stored pages were made by another recipe under this pipeline id and are done again", others)
    accounted = all(page.number in done or _known_failed(page, previous) for page in pages)
    covered = previous is not None and previous.names() == {page_name(page.number) for page in pages}
    return Resume(done, previous, accounted and covered)


def clear(store: Store, keys: Keys, pages: Iterable[int], done: Mapping[int, Done], stop: Callable[[], bool]) -> int:
    """Delete manifest.json, then iiif.json, then every stored file of every page of `pages` that is not done.

    How many of the pages' files were deleted; ends early where `stop()` says so. Raises StoreError.
    """
    listing = list_stored(store, keys)
    gone = [key for n in pages if n not in done for key in (keys.alto(n), keys.page(n)) if key in listing.keys]
    for document in (keys.manifest, keys.viewer):
        if stop():
            return 0
        store.delete(document)
    deleted = 0
    for start in range(0, len(gone), _CLEARED_AT_ONCE):
        if stop():
            break
        batch = gone[start : start + _CLEARED_AT_ONCE]
        _in_threads(store.delete, batch)
        deleted += len(batch)
    return deleted


def metadata(source: str, recipe: str | None, size: Size) -> dict[str, str]:
    """What a stored ALTO carries for the next run's sake."""
    carried = {SOURCE: source, PAGE_SIZE: f"{size[0]}x{size[1]}"}
    return carried | ({RECIPE: recipe} if recipe else {})


class _Verdict:
    pass


_OTHER_RECIPE, _OTHER_SOURCE = _Verdict(), _Verdict()


def _recorded(previous: Previous, page: Page, recipe: str | None) -> Done | _Verdict | None:
    """What the previous manifest says of a page; None where it does not say enough, and where it names another
    recipe: only the page itself knows whether it was made by that one or has no mark of any."""
    entry, size = previous.entry(page.number), previous.size(page.number)
    if entry.get("status") not in (OK, SKIPPED) or size is None or previous.digest(page.number) is None:
        return None
    if previous.recipe is None or previous.recipe != recipe:
        return None
    return Done(size, _skipped(entry)) if previous.same_source(page) else _OTHER_SOURCE


def _asked(store: Store, keys: Keys, page: Page, previous: Previous | None, recipe: str | None) -> Done | _Verdict:
    """What the stored ALTO itself says."""
    key = keys.alto(page.number)
    try:
        found = store.head(key)
        if found.get(RECIPE) not in (None, recipe):
            return _OTHER_RECIPE
        source = found.get(SOURCE)
        same = source == page.digest if source else previous is not None and previous.same_source(page)
        if not same:
            return _OTHER_SOURCE
        size = _as_stamped(found.get(PAGE_SIZE)) or alto.page_size(parse(store.get(key)[0]))
    except (MissingObject, BadExport) as e:  # Deleted since it was listed, or no ALTO: to be done again.
        log.warning("page %s is stored and cannot be used, it is done again: %s", page_name(page.number), e)
        return _OTHER_SOURCE
    return Done(size, _skipped(previous.entry(page.number) if previous else {}))


def _skipped(entry: dict[str, Any]) -> dict[str, Any]:
    """The page's previous entry, now skipped; a page without one took this run no time."""
    if entry.get("status") not in (OK, SKIPPED):
        entry = {}
    return {"seconds": 0.0, **entry, "status": SKIPPED}


def _known_failed(page: Page, previous: Previous | None) -> bool:
    """A canvas without an image cannot be done by anybody."""
    return bool(page.error) and previous is not None and previous.entry(page.number).get("status") == FAILED


def _previous(store: Store, keys: Keys) -> Previous | None:
    try:
        body, stored = store.get(keys.manifest)
    except MissingObject:
        return None
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        log.warning("the stored manifest.json is not readable and counts for nothing")
        return None
    return Previous(document, stored)


def _recorded_recipe(document: dict[str, Any]) -> str | None:
    if (digest := _of(document, "recipe_digest", str)) is not None:
        return digest
    text = _of(document, "pipeline_yaml", str)
    try:
        return recipe_digest(text) if text else None
    except PipelineError:
        return None


def _as_stamped(text: str | None) -> Size | None:
    width, _, height = (text or "").partition("x")
    return as_size(int(width), int(height)) if width.isdecimal() and height.isdecimal() else None


def _of(holder: dict[str, Any], key: str, kind: type[T]) -> T | None:
    value = holder.get(key)
    return value if isinstance(value, kind) else None


def _in_threads(work: Callable[[T], R], items: list[T]) -> list[R]:
    """`work` of each item, in order; the first StoreError ends it, what has not begun is not begun."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="objects") as threads:
        try:
            return list(threads.map(work, items))
        except StoreError:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
