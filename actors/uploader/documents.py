"""manifest.json: what was done, from what, with what; its presence means that the volume is complete.

A pure builder (batchpod/README.md, section 6). Two keys serve the next run's resume: `recipe_digest` and `page_sizes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from actors.gpu.pipeline_file import PipelineError, recipe_digest
from actors.messages import page_name
from actors.redact import credentials_only
from actors.specs import UploaderSpec
from actors.uploader.keys import Keys, url
from actors.uploader.volume import Done, Outcomes, Size, Volume, as_size

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
_RESULT = ("status", "seconds", "error", "fetch_seconds", "decode_seconds", "upload_seconds", "lines")
_RUN = ("bytes_fetched", "wall_seconds", "gpu_stall_seconds", "store_stall_seconds", "pages_per_second")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The pipeline file as it is, its text, and the digest of its steps (None where it has none, which `load`
    refuses)."""

    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    @property
    def digest(self) -> str | None:
        try:
            return recipe_digest(self.text)
        except PipelineError:
            return None


def results(outcomes: Outcomes, done: Mapping[int, Done]) -> dict[int, dict[str, Any]]:
    """Every page's entry, in page order; a skipped page keeps that of the run that made it."""
    entries = {}
    for number, outcome in sorted(outcomes.pages.items()):
        if outcome["status"] == SKIPPED and number in done:
            entries[number] = done[number].entry
        else:
            entries[number] = {key: outcome[key] for key in _RESULT if outcome.get(key) is not None}
    return entries


def sizes(outcomes: Outcomes, done: Mapping[int, Done]) -> dict[int, Size]:
    """The pixel size of every page that came out and whose size is known."""
    found = {}
    for number, outcome in sorted(outcomes.pages.items()):
        if outcome["status"] not in (OK, SKIPPED):
            continue
        stored = done[number].size if number in done else None
        size = as_size(outcome.get("width"), outcome.get("height")) or stored
        if size:
            found[number] = size
    return found


def build(
    volume: Volume, spec: UploaderSpec, keys: Keys, recipe: Recipe, outcomes: Outcomes, done: Mapping[int, Done]
) -> bytes:
    """The manifest's JSON."""
    entries, page_sizes, run = results(outcomes, done), sizes(outcomes, done), outcomes.run
    covered = [page for page in volume.pages if page.number in entries]
    statuses = [entry["status"] for entry in entries.values()]
    source = credentials_only(volume.source) if volume.source else url(spec.results_url, keys.source)
    document = {
        "volume": spec.volume,
        "pipeline_id": spec.pipeline_id,
        "pipeline_sha256": hashlib.sha256(recipe.data).hexdigest(),
        "pipeline_yaml": recipe.text,
        "recipe_digest": recipe.digest,
        "htrflow_version": run.get("htrflow_version"),
        "image_digest": spec.image_digest,
        "htrflow_base_revision": spec.htrflow_base_revision,
        "batchpod_version": spec.batchpod_version,
        "pages": len(entries),
        "pages_ok": sum(status in (OK, SKIPPED) for status in statuses),
        "pages_failed": statuses.count(FAILED),
        "results": {page_name(number): entry for number, entry in entries.items()},
        "page_sources": {page_name(p.number): credentials_only(p.url) for p in covered if p.url},
        "page_source_digests": {page_name(p.number): p.digest for p in covered if p.digest},
        "page_sizes": {page_name(number): size for number, size in page_sizes.items()},
        "canvas_ids": {page_name(p.number): credentials_only(p.canvas_id) for p in covered},
        "source_manifest": source,
        "max_image_width": spec.max_image_width,
        **{key: run.get(key) for key in _RUN},
        "gpu_restarts": run.get("gpu_restarts") or [],
        "viewer_url": url(spec.results_url, keys.viewer) if page_sizes else None,
    }
    if run.get("image_cache") is not None:
        document["image_cache"] = run["image_cache"]
    return orjson.dumps(document)
