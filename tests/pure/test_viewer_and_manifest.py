"""The two documents that a volume ends with: iiif.json for people's viewers, manifest.json for everybody else."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from actors.gpu.pipeline_file import recipe_digest
from actors.specs import UploaderSpec
from actors.uploader import documents, viewer
from actors.uploader.keys import Keys, url, viewer_url
from actors.uploader.volume import Done, Outcomes, Page, Volume

KEYS = Keys("ns/A 0068#1 å", "trocr-1", "R0001203")
RESULTS = "https://results.example/base/"
BASE = "https://results.example/base/ns/A%200068%231%20%C3%A5/trocr-1/R0001203"
PIPELINE = b"steps:\n- step: Segmentation\n"


def spec(**changes: Any) -> UploaderSpec:
    paths = dict.fromkeys(("pages_path", "source_path", "done_path", "missing_path", "pipeline_path", "log_dir"), "")
    values: dict[str, Any] = {
        **paths,
        "volume": "R0001203",
        "pipeline_id": "trocr-1",
        "bucket": "b",
        "prefix": KEYS.prefix,
        "s3_endpoint": None,
        "s3_verify_tls": True,
        "results_url": RESULTS,
        "resume": True,
        "from_images": False,
        "upload_concurrency": 1,
        "max_image_width": 2500,
        "run_id": "r",
        "attempt": "0",
        "image_digest": "sha256:abc",
        "htrflow_base_revision": "ef0ed37",
        "batchpod_version": "1.2.3",
    }
    return UploaderSpec(**(values | changes))


def page(number: int, **changes: Any) -> Page:
    address = f"https://me:pw@i.example/iiif/{number}%2Fa/full/2500,/0/default.jpg?v=1&token=s3cr3t"
    service = {
        "@id": f"https://me:pw@i.example/iiif/{number}?sig=s3cr3t",
        "@type": "ImageService2",
        "profile": "level1",
    }
    values: dict[str, Any] = {
        "number": number,
        "url": address,
        "digest": f"d{number}",
        "canvas_id": f"https://m.example/canvas/{number}",
        "label": {"sv": [f"sida {number}"]},
        "body": {"id": address, "type": "Image", "service": [service]},
        "error": None,
    }
    return Page(**(values | changes))


def volume(count: int = 3, **changes: Any) -> Volume:
    pages = tuple(page(number) for number in range(1, count + 1))
    return Volume("https://me:pw@m.example/manifest.json?key=s3cr3t&x=1", {"sv": ["Häfte"]}, pages)


def iiif(of: Volume, sizes: dict[int, tuple[int, int]]) -> dict[str, Any]:
    body = viewer.build(of, KEYS, RESULTS, "R0001203", sizes)
    assert body is not None
    document: dict[str, Any] = orjson.loads(body)
    return document


def test_the_viewers_manifest_has_a_canvas_for_each_page_that_came_out() -> None:
    document = iiif(volume(), {1: (500, 600), 3: (700, 800)})
    assert document["id"] == f"{BASE}/iiif.json" == viewer_url(RESULTS, KEYS.prefix, "trocr-1", "R0001203")
    assert document["label"] == {"sv": ["Häfte"]}
    first, second = document["items"]
    assert (first["id"], first["width"], first["height"]) == (f"{BASE}/canvas/0001", 500, 600)
    assert second["id"] == f"{BASE}/canvas/0003"
    assert second["label"] == {"sv": ["sida 3"]}
    assert second["seeAlso"] == [
        {
            "id": f"{BASE}/alto/0003.xml",
            "type": "Dataset",
            "format": "application/xml+alto",
            "profile": "http://www.loc.gov/standards/alto/ns-v4#",
        }
    ]
    annotation = second["items"][0]["items"][0]
    assert (annotation["motivation"], annotation["target"]) == ("painting", second["id"])


def test_the_body_is_the_sources_with_its_service_as_it_is_but_for_credentials() -> None:
    body = iiif(volume(1), {1: (5, 6)})["items"][0]["items"][0]["items"][0]["body"]
    assert body["id"] == "https://i.example/iiif/1%2Fa/full/2500,/0/default.jpg?v=1"
    assert body["service"] == [{"@id": "https://i.example/iiif/1", "@type": "ImageService2", "profile": "level1"}]


def test_there_is_one_stub_search_service() -> None:
    (service,) = iiif(volume(1), {1: (5, 6)})["service"]
    assert service["@type"] == "SearchService1"
    assert service["profile"] == "http://iiif.io/api/search/1/search"


def test_labels_that_are_missing_become_the_ids() -> None:
    document = iiif(Volume(None, None, (page(1, label=None),)), {1: (5, 6)})
    assert document["label"] == {"none": ["R0001203"]}
    assert document["items"][0]["label"] == {"none": ["0001"]}


def test_without_any_size_there_is_no_viewers_manifest() -> None:
    assert viewer.build(volume(), KEYS, RESULTS, "R0001203", {}) is None


def test_whether_the_viewer_will_need_credentials_is_known() -> None:
    assert viewer.has_credentials(volume())
    assert not viewer.has_credentials(Volume(None, None, (page(1, body={"id": "https://i.example/1?w=2"}),)))


def test_every_segment_of_a_url_is_encoded_and_the_base_is_not() -> None:
    assert url("https://r.example/a%20b?", "x y/å+?#/1.xml") == "https://r.example/a%20b?/x%20y/%C3%A5%2B%3F%23/1.xml"


OUTCOMES = Outcomes(
    {
        1: {"status": "skipped", "seconds": 0.0},
        2: {"status": "failed", "seconds": 1.0, "error": "not an image", "lines": None},
        3: {"status": "ok", "seconds": 2.5, "lines": 7, "fetch_seconds": 0.5, "width": 500, "height": 600, "foo": 1},
    },
    {
        "htrflow_version": "0.2.6",
        "bytes_fetched": 9,
        "wall_seconds": 3.5,
        "gpu_stall_seconds": 0.5,
        "store_stall_seconds": 0.0,
        "pages_per_second": 0.9,
        "gpu_restarts": [{"page": "0002", "cause": "hung", "seconds": 3.0}],
        "image_cache": None,
    },
)
DONE = {1: Done((10, 20), {"status": "skipped", "seconds": 8.0, "lines": 3})}


def manifest(of: Volume | None = None, outcomes: Outcomes = OUTCOMES, **changes: Any) -> dict[str, Any]:
    body = documents.build(of or volume(), spec(**changes), KEYS, documents.Recipe(PIPELINE), outcomes, DONE)
    document: dict[str, Any] = orjson.loads(body)
    return document


def test_the_manifest_counts_and_names_every_page() -> None:
    document = manifest()
    assert (document["pages"], document["pages_ok"], document["pages_failed"]) == (3, 2, 1)
    assert document["results"] == {
        "0001": {"status": "skipped", "seconds": 8.0, "lines": 3},
        "0002": {"status": "failed", "seconds": 1.0, "error": "not an image"},
        "0003": {"status": "ok", "seconds": 2.5, "fetch_seconds": 0.5, "lines": 7},
    }
    assert list(document["results"]) == ["0001", "0002", "0003"]
    assert document["page_source_digests"] == {"0001": "d1", "0002": "d2", "0003": "d3"}
    assert document["canvas_ids"]["0002"] == "https://m.example/canvas/2"
    assert document["page_sizes"] == {"0001": [10, 20], "0003": [500, 600]}


def test_the_manifest_holds_no_credentials_and_keeps_the_rest_of_each_url() -> None:
    document = manifest()
    assert document["page_sources"]["0001"] == "https://i.example/iiif/1%2Fa/full/2500,/0/default.jpg?v=1"
    assert document["source_manifest"] == "https://m.example/manifest.json?x=1"
    assert b"s3cr3t" not in orjson.dumps(document)
    assert b"me:pw" not in orjson.dumps(document)


def test_the_manifest_says_what_made_it() -> None:
    document = manifest()
    assert document["pipeline_yaml"] == PIPELINE.decode()
    assert document["recipe_digest"] == recipe_digest(PIPELINE.decode())
    assert document["gpu_restarts"] == [{"page": "0002", "cause": "hung", "seconds": 3.0}]
    assert document["bytes_fetched"] == 9
    assert document["viewer_url"] == f"{BASE}/iiif.json"
    assert "image_cache" not in document


def test_the_cache_is_named_where_there_was_one() -> None:
    cache = {"bucket": "images", "hits": 1, "misses": 2, "stored": 2}
    assert manifest(outcomes=Outcomes(OUTCOMES.pages, OUTCOMES.run | {"image_cache": cache}))["image_cache"] == cache


def test_a_list_of_images_names_the_manifest_that_was_built_of_it() -> None:
    of = Volume(None, None, volume().pages)
    source = manifest(of)["source_manifest"]
    assert source == "https://results.example/base/ns/A%200068%231%20%C3%A5/sources/trocr-1/R0001203/manifest.json"


def test_without_any_size_no_viewer_is_promised() -> None:
    failed = {number: {"status": "failed", "seconds": 0.0, "error": "x"} for number in (1, 2, 3)}
    assert manifest(outcomes=Outcomes(failed))["viewer_url"] is None


@pytest.mark.parametrize("count", [10_000])
def test_ten_thousand_pages_make_a_manifest_of_under_five_megabytes(count: int) -> None:
    outcomes = Outcomes({n: OUTCOMES.pages[3] for n in range(1, count + 1)}, OUTCOMES.run)
    pages = tuple(page(n, digest="d" * 64) for n in range(1, count + 1))
    began = time.monotonic()
    body = documents.build(Volume(None, None, pages), spec(), KEYS, documents.Recipe(PIPELINE), outcomes, {})
    print(time.monotonic() - began)
    assert len(body) < 5_000_000
