"""The image cache over whole runs: what it counts, where it says so, and that it is nobody else's trouble."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from tests.volume import Volume

Make = Callable[..., Volume]
COUNT = 4


def line(this: Volume, cache: str, hits: int, misses: int, stored: int) -> str:
    return f"[{this.ref}] image cache {cache}: {hits} hits, {misses} misses, {stored} stored"


def counts(this: Volume) -> Any:
    return this.manifest["image_cache"]


def test_a_second_run_of_a_volume_takes_its_images_from_the_cache(volume: Make, s3: Any) -> None:
    cache = f"cache-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=cache)
    this = volume(COUNT)
    first = this.run(IMAGE_CACHE_BUCKET=cache)
    assert first.code == 0, first.log
    assert counts(this) == {"bucket": cache, "hits": 0, "misses": COUNT, "stored": COUNT}
    assert line(this, cache, 0, COUNT, COUNT) in this.run_log
    keys = {entry["Key"] for entry in s3.list_objects_v2(Bucket=cache)["Contents"]}
    assert keys == {f"{this.ref}/{this.ref}_{page:05d}.jpg" for page in range(1, COUNT + 1)}
    assert this.manifest["bytes_fetched"] > 0
    text = this.get(f"{this.prefix}/alto/0001.xml")

    asked = this.origin.asked()
    second = this.run(IMAGE_CACHE_BUCKET=cache, RESUME="false")
    assert second.code == 0, second.log
    assert counts(this) == {"bucket": cache, "hits": COUNT, "misses": 0, "stored": 0}
    assert line(this, cache, COUNT, 0, 0) in this.run_log
    assert this.manifest["bytes_fetched"] == 0
    assert this.origin.asked() == asked
    assert len(this.get(f"{this.prefix}/alto/0001.xml")) == len(text)


def test_a_cache_that_is_not_there_fails_no_page(volume: Make) -> None:
    this = volume(COUNT)
    ended = this.run(IMAGE_CACHE_BUCKET="no-such-cache")
    assert ended.code == 0, ended.log
    assert set(this.outcomes().values()) == {"ok"}
    assert ended.log.count("image cache no-such-cache: off for the rest of the run") == 1
    assert json.dumps(counts(this)) == '{"bucket": "no-such-cache", "hits": 0, "misses": 4, "stored": 0}'
