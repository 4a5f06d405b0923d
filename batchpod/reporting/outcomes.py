"""The outcomes of a run as the file from which the uploader makes what is published, and the run's own numbers."""

from __future__ import annotations

import os
from typing import Any

import orjson

from batchpod.flow.accounts import Counters
from batchpod.flow.ledger import Page, State
from batchpod.flow.stream import Stream
from batchpod.gpus.pool import Gpus


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


class Outcomes:
    """Writes the file; `cache_bucket` is the image cache's, None without one."""

    def __init__(self, stream: Stream, gpus: Gpus, cache_bucket: str | None) -> None:
        self._stream, self._gpus, self._cache_bucket = stream, gpus, cache_bucket

    def write(self, path: str, wall_s: float, *states: State) -> str:
        """Write the pages that are in one of `states`, and the facts of a run that has taken `wall_s`, to `path`
        (replaced whole)."""
        with open(f"{path}.new", "wb") as f:
            # Page by page: all of them at once would leave this process larger for good.
            f.write(b'{"pages":{')
            for index, page in enumerate(self._stream.ledger.each(*states)):
                f.write(b'%s"%d":' % (b"," if index else b"", page.number))
                f.write(orjson.dumps(page_outcome(page)))
            f.write(b'},"run":%s}' % orjson.dumps(self.facts(wall_s)))
        os.replace(f"{path}.new", path)
        return path

    def facts(self, wall_s: float) -> dict[str, Any]:
        """What manifest.json says of the run as a whole."""
        counters, versions = self._stream.counters, self._gpus.versions
        processed = self._stream.ledger.count(State.OK)
        return {
            "htrflow_version": versions.htrflow if versions else "",
            "bytes_fetched": counters.bytes_fetched,
            "wall_seconds": round(wall_s, 3),
            "gpu_stall_seconds": round(self._stream.stalls.gpu_stall_s, 3),
            "store_stall_seconds": round(self._stream.stalls.store_stall_s, 3),
            "pages_per_second": round(processed / wall_s, 4) if wall_s > 0 else 0.0,
            "gpu_restarts": self._gpus.restarts,
            "image_cache": self._image_cache(counters),
        }

    def _image_cache(self, counters: Counters) -> dict[str, Any] | None:
        if not self._cache_bucket:
            return None
        return {
            "bucket": self._cache_bucket,
            "hits": counters.cache_hits,
            "misses": counters.cache_misses,
            "stored": counters.cache_stored,
        }

    def image_cache_line(self, volume: str) -> str | None:
        """The line about the image cache that readers match; None without one."""
        c, bucket = self._stream.counters, self._cache_bucket
        if not bucket:
            return None
        return f"[{volume}] image cache {bucket}: {c.cache_hits} hits, {c.cache_misses} misses, {c.cache_stored} stored"
