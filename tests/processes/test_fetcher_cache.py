"""The image cache against a real store: what it spares the origin, and that its troubles are nobody else's."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from actors.fetcher.cache import usable_bucket
from actors.fetcher.sizes import cache_identity
from actors.messages import CacheStored, Decoded, Fetched
from actors.specs import FetcherSpec
from tests.fetcher_process import FetcherProcess, running_fetcher, spec_for
from tools import origin as tell
from tools.localstack import LocalStack
from tools.origin import Origin, running_origin

COUNT = 4
Spec = Callable[..., FetcherSpec]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    images.mkdir()
    for number in range(1, COUNT + 1):
        Image.effect_noise((120, 80), 60).convert("RGB").save(images / f"{number:04d}.jpg")
    return images


@pytest.fixture
def cached(tmp_path: Path, localstack: LocalStack, bucket: str) -> Spec:
    """Settings with a cache in a new bucket."""

    def make(**changes: Any) -> FetcherSpec:
        return spec_for(tmp_path, **({"cache_bucket": bucket, "s3_endpoint": localstack.url} | changes))

    return make


def run(spec: FetcherSpec, stored: int = 0) -> FetcherProcess:
    """Fetch and decode every page in a fetcher of its own, which has ended when this returns."""
    with running_fetcher(spec) as fetcher:
        fetcher.read_source()
        fetcher.fetch(*range(1, COUNT + 1))
        for page in range(1, COUNT + 1):
            fetcher.decode(page)
            fetcher.wait_for(Decoded, page=page)
        assert fetcher.end() == 0
        assert len(fetcher.all_of(CacheStored)) == stored
        return fetcher


def said(fetcher: FetcherProcess) -> list[str]:
    return [m.cache for m in sorted(fetcher.all_of(Fetched), key=lambda m: m.page)]


def test_a_second_run_is_spared_the_origin(folder: Path, cached: Spec, s3: Any, bucket: str) -> None:
    with running_origin(folder) as origin:
        first = run(cached(manifest_url=origin.manifest_url), stored=COUNT)
        assert said(first) == ["miss"] * COUNT
        assert origin.asked() == COUNT
        second = run(cached(manifest_url=origin.manifest_url))
        assert said(second) == ["hit"] * COUNT
        assert [m.origin_bytes for m in second.all_of(Fetched)] == [0] * COUNT
        assert origin.asked() == COUNT
        held = s3.get_object(Bucket=bucket, Key="vol/vol_00003.jpg")
        assert held["Metadata"] == {"source": cache_identity(f"{origin.host_url}/iiif/0003.jpg/full/max/0/default.jpg")}
        assert held["Body"].read() == (folder / "0003.jpg").read_bytes()
        assert held["ContentType"] == "image/jpeg"


def test_another_width_and_other_credentials_are_the_same_image(folder: Path, cached: Spec) -> None:
    with running_origin(folder) as origin:
        run(cached(manifest_url=origin.manifest_url, max_image_width=60), stored=COUNT)
        assert said(run(cached(manifest_url=origin.manifest_url, max_image_width=2500))) == ["hit"] * COUNT
        images = tuple(f"{url}?v=1&token=a" for url in origin.image_urls)
        run(cached(images=images), stored=COUNT)
        assert said(run(cached(images=tuple(u.replace("=a", "=b") for u in images)))) == ["hit"] * COUNT
        assert (
            said(run(cached(images=tuple(u.replace("v=1", "v=2") for u in images)), stored=COUNT)) == ["miss"] * COUNT
        )


@pytest.mark.parametrize("body", [b"", b"<html>gone</html>", b"\xff\xd8\xff\xe0 cut", b"x" * 2**16])
def test_a_stored_object_that_is_no_usable_image_is_downloaded_and_overwritten(
    folder: Path, cached: Spec, s3: Any, bucket: str, body: bytes
) -> None:
    with running_origin(folder) as origin:
        spec = cached(manifest_url=origin.manifest_url, fetch_max_bytes=2**15)
        run(spec, stored=COUNT)
        held = s3.get_object(Bucket=bucket, Key="vol/vol_00002.jpg")
        s3.put_object(Bucket=bucket, Key="vol/vol_00002.jpg", Body=body, Metadata=held["Metadata"])
        assert said(run(spec, stored=1)) == ["hit", "miss", "hit", "hit"]
        assert said(run(spec)) == ["hit"] * COUNT


def test_an_object_of_another_source_is_a_miss(folder: Path, cached: Spec, s3: Any, bucket: str) -> None:
    with running_origin(folder) as origin:
        spec = cached(manifest_url=origin.manifest_url)
        run(spec, stored=COUNT)
        body = s3.get_object(Bucket=bucket, Key="vol/vol_00001.jpg")["Body"].read()
        s3.put_object(Bucket=bucket, Key="vol/vol_00001.jpg", Body=body, Metadata={"source": "0" * 64})
        s3.put_object(Bucket=bucket, Key="vol/vol_00002.jpg", Body=body)
        assert said(run(spec, stored=2)) == ["miss", "miss", "hit", "hit"]


def refused(origin: Origin, spec: FetcherSpec) -> list[str]:
    """What the log says of the cache when nothing comes of it; every page has come all the same."""
    before = origin.asked()
    fetcher = run(spec)
    assert origin.asked() == before + COUNT
    return [line for line in fetcher.log.splitlines() if "image cache" in line]


def test_a_bucket_that_does_not_exist_is_one_line_in_the_log(folder: Path, cached: Spec) -> None:
    with running_origin(folder) as origin:
        gone = cached(manifest_url=origin.manifest_url, cache_bucket=f"gone-{uuid.uuid4().hex}")
        (line,) = refused(origin, gone)
        assert "NoSuchBucket" in line
        (line,) = refused(origin, cached(manifest_url=origin.manifest_url, cache_bucket="no such name"))
        assert "bucket name" in line


def test_a_store_that_is_not_there_is_one_line_in_the_log(folder: Path, cached: Spec) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with running_origin(folder) as origin:
        (line,) = refused(origin, cached(manifest_url=origin.manifest_url, s3_endpoint=f"http://127.0.0.1:{port}"))
        assert "off for the rest of the run" in line


def test_the_results_bucket_is_never_the_cache(folder: Path, cached: Spec, s3: Any, bucket: str) -> None:
    with running_origin(folder) as origin:
        (line,) = refused(origin, cached(manifest_url=origin.manifest_url, results_bucket=bucket))
        assert "results bucket" in line
        assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_a_volume_with_a_page_past_99999_has_no_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = spec_for(tmp_path, cache_bucket="cache")
    assert usable_bucket(spec, 99_999) == "cache"
    assert usable_bucket(spec, 100_000) is None
    assert [r.getMessage() for r in caplog.records] == ["image cache cache: off, the volume has a page past 99999"]


def test_what_is_still_being_stored_gets_there_before_the_fetcher_stops(
    folder: Path, cached: Spec, s3: Any, bucket: str
) -> None:
    with running_origin(folder, {"images": tell.delay(0.05)}) as origin:
        run(cached(manifest_url=origin.manifest_url), stored=COUNT)
        assert len(s3.list_objects_v2(Bucket=bucket)["Contents"]) == COUNT


def test_a_client_that_cannot_be_made_is_one_line_in_the_log(folder: Path, cached: Spec, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("no section\n= at all")
    with running_origin(folder) as origin:
        spec = cached(manifest_url=origin.manifest_url)
        with running_fetcher(spec, AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "credentials")) as fetcher:
            fetcher.read_source()
            fetcher.fetch(*range(1, COUNT + 1))
            fetcher.wait_count(COUNT, Fetched)
            assert fetcher.end() == 0
            (line,) = [line for line in fetcher.log.splitlines() if "image cache" in line]
            assert "off for the rest of the run" in line
            assert "Traceback" not in fetcher.log
