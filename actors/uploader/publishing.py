"""The volume-wide operations: list, clear, verify, publish. Each runs on the documents thread, one after another.

Owns what is held of the volume between them; does not own the documents' shapes (`documents.py`, `viewer.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import orjson

from actors.messages import Cleared, InterimPublished, Published, SourcePut, StoredListed, StoredVerified
from actors.specs import UploaderSpec
from actors.uploader import documents, resume, viewer
from actors.uploader.keys import JSON, YAML, Keys
from actors.uploader.store import Store
from actors.uploader.volume import Done, Outcomes, Volume, read_done, read_outcomes, read_volume, write_done

log = logging.getLogger(__name__)


class Publishing:
    """Every method raises StoreError for the store and OSError or ValueError for a file that cannot be read."""

    def __init__(self, store: Store, keys: Keys, spec: UploaderSpec, stopping: Callable[[], bool]) -> None:
        self._store, self._keys, self._spec, self._stopping = store, keys, spec, stopping
        self._told_of_credentials = False

    @cached_property
    def recipe(self) -> documents.Recipe:
        return documents.Recipe(Path(self._spec.pipeline_path).read_bytes())

    @cached_property
    def volume(self) -> Volume:
        """The page list, read once the fetcher has written it."""
        return read_volume(self._spec.pages_path)

    @cached_property
    def _done(self) -> dict[int, Done]:
        return read_done(self._spec.done_path)

    def put_source(self) -> SourcePut:
        body = Path(self._spec.source_path).read_bytes()
        self._store.put(self._keys.source, body, JSON)
        return SourcePut()

    def list_stored(self) -> StoredListed:
        """The bucket is listed whether or not anything is resumed: a store that is down is found out here."""
        listing = resume.list_stored(self._store, self._keys)
        found = resume.Resume({}, None, False)
        if self._spec.resume:
            pages, recipe = self.volume.pages, self.recipe.digest
            found = resume.find_done(self._store, self._keys, pages, listing, recipe)
        write_done(self._spec.done_path, found.done, found.previous is not None)
        self._done = found.done
        return StoredListed(len(found.done), found.complete)

    def clear(self) -> Cleared:
        numbers = range(1, len(self.volume.pages) + 1)
        return Cleared(resume.clear(self._store, self._keys, numbers, self._done, self._stopping))

    def publish_interim(self, outcomes_path: str) -> InterimPublished | None:
        """iiif.json with the pages that are done so far; None when the run ends meanwhile."""
        began = time.monotonic()
        pages = self._publish_viewer(read_outcomes(outcomes_path))
        return None if pages is None else InterimPublished(pages > 0, pages, time.monotonic() - began)

    def verify(self, outcomes_path: str) -> StoredVerified:
        """List both prefixes again; the pages that should have both files and do not go to `missing_path`."""
        listing = resume.list_stored(self._store, self._keys)
        expected = (
            number
            for number, outcome in sorted(read_outcomes(outcomes_path).pages.items())
            if outcome["status"] in (documents.OK, documents.SKIPPED)
        )
        missing = [number for number in expected if not listing.has(self._keys, number)]
        Path(self._spec.missing_path).write_bytes(orjson.dumps({"missing": missing}))
        return StoredVerified(len(missing))

    def publish(self, outcomes_path: str) -> Published | None:
        """iiif.json, pipeline.yaml and, last, manifest.json; None when the run ends meanwhile."""
        outcomes = read_outcomes(outcomes_path)
        pages = self._publish_viewer(outcomes)
        if pages is None:
            return None
        if not pages:
            log.warning("no page's size is known: iiif.json is left out")
        self._store.put(self._keys.pipeline, self.recipe.data, YAML)
        body = documents.build(self.volume, self._spec, self._keys, self.recipe, outcomes, self._done)
        if self._stopping():
            return None
        self._store.put(self._keys.manifest, body, JSON)
        return Published(pages > 0)

    def _publish_viewer(self, outcomes: Outcomes) -> int | None:
        """How many canvases were published (0: none has a size, and nothing is put); None when the run ends."""
        sizes = documents.sizes(outcomes, self._done)
        body = viewer.build(self.volume, self._keys, self._spec.results_url, self._spec.volume, sizes)
        if self._stopping():
            return None
        if body is None:
            return 0
        self._tell_of_credentials()
        self._store.put(self._keys.viewer, body, JSON)
        return len(sizes)

    def _tell_of_credentials(self) -> None:
        if not self._told_of_credentials:
            self._told_of_credentials = True
            if viewer.has_credentials(self.volume):
                log.warning("credentials were taken out of the published image URLs: the viewer will need them")
