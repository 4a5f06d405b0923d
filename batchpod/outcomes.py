"""The outcomes of a run as the file from which the uploader makes what is published."""

from __future__ import annotations

import os
from typing import Any

import orjson

from batchpod.gpus import Gpus
from batchpod.ledger import Ledger, Page, State
from batchpod.stream import Stream


def page_outcome(page: Page) -> dict[str, Any]:
    """One page's entry; durations in seconds, only what is known."""
    entry: dict[str, Any] = {"status": str(page.state), "seconds": round(page.transcribe_s or 0.0, 3)}
    if page.reason:
        entry["error"] = page.reason
    for name, value in (("fetch", page.fetch_s), ("decode", page.decode_s), ("upload", page.upload_s)):
        if value is not None:
            entry[f"{name}_seconds"] = round(value, 3)
    if page.lines is not None and page.state is State.OK:
        entry["lines"] = page.lines
    if page.width and page.state is State.OK:
        entry["width"], entry["height"] = page.width, page.height
    return entry


def run_facts(stream: Stream, gpus: Gpus, wall_s: float, cache_bucket: str | None) -> dict[str, Any]:
    """What manifest.json says of the run as a whole."""
    counters, processed = stream.counters, stream.ledger.count(State.OK)
    cache = None
    if cache_bucket:
        cache = {
            "bucket": cache_bucket,
            "hits": counters.cache_hits,
            "misses": counters.cache_misses,
            "stored": counters.cache_stored,
        }
    return {
        "htrflow_version": gpus.versions.htrflow if gpus.versions else "",
        "bytes_fetched": counters.bytes_fetched,
        "wall_seconds": round(wall_s, 3),
        "gpu_stall_seconds": round(stream.stalls.gpu_stall_s, 3),
        "store_stall_seconds": round(stream.stalls.store_stall_s, 3),
        "pages_per_second": round(processed / wall_s, 4) if wall_s > 0 else 0.0,
        "gpu_restarts": gpus.restarts,
        "image_cache": cache,
    }


def write(path: str, ledger: Ledger, facts: dict[str, Any], *states: State) -> None:
    """Write the pages that are in one of `states`, and the run's facts, to `path` (replaced whole)."""
    pages = {str(page.number): page_outcome(page) for page in ledger.each(*states)}
    with open(f"{path}.new", "wb") as f:
        f.write(orjson.dumps({"pages": pages, "run": facts}))
    os.replace(f"{path}.new", path)
