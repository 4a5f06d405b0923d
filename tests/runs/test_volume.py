"""One volume, end to end: what is stored, what is said, what a second run does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from lxml import etree

from tests.doubles import s3 as s3_double
from tests.volume import Volume, steps
from tools.origin import status

Make = Callable[..., Volume]


def test_a_volume_leaves_exactly_the_keys_of_the_contract_with_their_content_types(volume: Make):
    this = volume(5)
    ended = this.run()
    assert ended.code == 0, ended.log
    assert ended.message is None
    assert set(this.outcomes().values()) == {"ok"}, ended.log
    names = [f"{n:04d}" for n in range(1, 6)]
    expected = {
        f"{this.prefix}/{kind}/{name}.xml": "application/xml" for kind in ("page", "alto") for name in names
    }
    expected |= {
        f"{this.prefix}/progress.json": "application/json",
        f"{this.prefix}/iiif.json": "application/json",
        f"{this.prefix}/pipeline.yaml": "text/yaml",
        f"{this.prefix}/manifest.json": "application/json",
        f"status/logs/test-recipe/{this.ref}.txt": "text/plain; charset=utf-8",
    }
    assert this.listing() == set(expected)
    assert {key: this.head(key)["ContentType"] for key in expected} == expected
    assert this.head(f"{this.prefix}/progress.json")["CacheControl"] == "no-store"
    alto = this.head(f"{this.prefix}/alto/0001.xml")["Metadata"]
    assert set(alto) == {"source-digest", "recipe-digest", "page-size"}
    assert alto["page-size"] == "120x160"
    assert this.left_in_workdir() == set()


def test_the_documents_say_what_was_done(volume: Make):
    this = volume(3)
    ended = this.run(IMAGE_DIGEST="sha256:abc", HTRFLOW_BASE_REVISION="ef0ed37")
    assert ended.code == 0, ended.log
    manifest = this.manifest
    assert (manifest["pages"], manifest["pages_ok"], manifest["pages_failed"]) == (3, 3, 0)
    assert manifest["volume"] == this.ref
    assert manifest["pipeline_id"] == "test-recipe"
    assert manifest["image_digest"] == "sha256:abc"
    assert manifest["htrflow_base_revision"] == "ef0ed37"
    assert manifest["pipeline_yaml"] == this.pipeline.read_text()
    assert set(manifest["results"]) == {"0001", "0002", "0003"}
    first = manifest["results"]["0001"]
    assert first["status"] == "ok"
    assert first["lines"] == 3
    assert {"seconds", "fetch_seconds", "decode_seconds", "upload_seconds"} <= set(first)
    assert manifest["gpu_restarts"] == []
    assert manifest["bytes_fetched"] > 0
    assert "image_cache" not in manifest
    progress = this.json("progress.json")
    assert (progress["stage"], progress["pages_done"], progress["pages_total"]) == ("done", 3, 3)
    assert progress["viewer_published"] is True
    viewer = this.json("iiif.json")
    assert [(c["width"], c["height"]) for c in viewer["items"]] == [(120, 160)] * 3
    assert viewer["items"][0]["seeAlso"][0]["id"].endswith(f"/{this.prefix}/alto/0001.xml")


def test_the_run_log_ends_with_the_line_that_readers_match(volume: Make):
    this = volume(4)
    ended = this.run()
    complete = rf"\[{this.ref}\] COMPLETE 4 pages \(4 processed\) in \d+s, viewer: https://results\.example/files/\S+iiif\.json"
    assert re.fullmatch(complete, ended.last_line)
    shipped = this.run_log
    assert re.fullmatch(complete, shipped.rstrip().rpartition("\n")[2])
    assert f"[{this.ref}] 4 pages in manifest" in shipped
    assert f"[{this.ref}] resume: 0 done, 4 to process" in shipped
    metadata = this.head(f"status/logs/test-recipe/{this.ref}.txt")["Metadata"]
    assert set(metadata) == {"run-id", "attempt"}


def test_a_second_run_fetches_nothing_and_loads_no_model(volume: Make):
    this = volume(4)
    assert this.run().code == 0
    asked, stored = (
        this.origin.asked(),
        {k: this.head(k)["LastModified"] for k in this.listing() if k.endswith(".xml")},
    )
    manifest = this.get(f"{this.prefix}/manifest.json")
    ended = this.run()
    assert ended.code == 0, ended.log
    assert f"[{this.ref}] resume: 4 done, 0 to process" in ended.log
    assert "COMPLETE 4 pages (0 processed)" in ended.last_line
    assert " loaded " not in ended.log
    assert this.origin.asked() == asked
    assert {k: this.head(k)["LastModified"] for k in this.listing() if k.endswith(".xml")} == stored
    assert this.get(f"{this.prefix}/manifest.json") == manifest


def test_a_missing_completion_marker_is_published_without_a_model(volume: Make):
    this = volume(3)
    assert this.run().code == 0
    this.s3.delete_object(Bucket=this.bucket, Key=f"{this.prefix}/manifest.json")
    ended = this.run()
    assert ended.code == 0, ended.log
    assert " loaded " not in ended.log
    assert this.outcomes() == dict.fromkeys(["0001", "0002", "0003"], "skipped")
    assert this.manifest["pages_ok"] == 3


def test_a_page_of_which_half_is_stored_is_done_again_and_the_others_are_kept(volume: Make):
    this = volume(3)
    assert this.run().code == 0
    this.s3.delete_object(Bucket=this.bucket, Key=f"{this.prefix}/page/0002.xml")
    ended = this.run()
    assert ended.code == 0, ended.log
    assert f"[{this.ref}] resume: 2 done, 1 to process" in ended.log
    assert this.outcomes() == {"0001": "skipped", "0002": "ok", "0003": "skipped"}
    assert len(this.json("iiif.json")["items"]) == 3


def test_another_recipe_under_the_same_id_redoes_every_page(volume: Make):
    this = volume(2)
    assert this.run().code == 0
    this.use(steps({"*": "say:something else"}))
    ended = this.run()
    assert f"[{this.ref}] resume: 0 done, 2 to process" in ended.log
    assert b"something else" in this.get(f"{this.prefix}/alto/0001.xml")


def test_resume_can_be_turned_off(volume: Make):
    this = volume(2)
    assert this.run().code == 0
    ended = this.run(RESUME="false")
    assert "COMPLETE 2 pages (2 processed)" in ended.last_line


def test_only_the_first_pages_are_done_when_max_pages_says_so(volume: Make):
    this = volume(5)
    ended = this.run(MAX_PAGES="2")
    assert ended.code == 0, ended.log
    assert this.pages_stored() == {"0001", "0002"}
    assert "COMPLETE 2 pages" in ended.last_line


def test_an_exception_in_a_model_fails_exactly_its_page_and_loads_nothing_again(volume: Make):
    this = volume(5)
    this.use(steps({"0003": "raise:a mask with no points"}))
    this.termination.write_text('{"stage": "load", "permanent": false, "error": "an earlier run"}')
    ended = this.run()
    assert ended.code == 0, ended.log
    assert ended.message is None, "a run that ends well leaves no message, not even an earlier run's"
    assert "1 of 5 pages failed, their reasons are in manifest.json: 0003" in ended.log
    assert this.outcomes() == {f"{n:04d}": "failed" if n == 3 else "ok" for n in range(1, 6)}
    error = this.manifest["results"]["0003"]["error"]
    assert "a mask with no points" in error
    assert "TextRecognition" in error
    assert f"page 0003 failed: {error}" in ended.log
    assert ended.log.count(" loaded ") == 1
    assert this.manifest["gpu_restarts"] == []
    assert this.pages_stored() == this.pages_stored("alto") == {"0001", "0002", "0004", "0005"}


def test_lines_without_a_region_above_them_end_the_run_for_good_with_the_cause_once(volume: Make):
    this = volume(3)
    this.use(steps()[1:])
    ended = this.run()
    assert ended.code == 13, ended.log
    assert ended.message is not None
    assert ended.message["permanent"] is True
    assert ended.message["stage"] == "verify"
    assert "recognized text not exported" in ended.message["error"]
    assert ended.last_line.startswith("permanent failure in verify: ")


def test_a_page_that_the_origin_does_not_serve_today_is_deferred_and_the_next_attempt_gets_it(volume: Make):
    this = volume(4, faults={2: status(503)})
    ended = this.run()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert ended.message["stage"] == "verify"
    assert "page 0002 deferred:" in ended.log
    assert f"{this.prefix}/manifest.json" not in this.listing()
    assert json.loads(this.get(f"{this.prefix}/progress.json"))["stage"] == "failed"
    assert this.pages_stored() == this.pages_stored("alto") == {"0001", "0003", "0004"}, ended.log
    this.origin.mend()
    ended = this.run()
    assert ended.code == 0, ended.log
    assert f"[{this.ref}] resume: 3 done, 1 to process" in ended.log, ended.log
    assert this.manifest["pages_ok"] == 4


def test_on_the_last_attempt_a_page_that_stays_away_is_recorded_failed(volume: Make):
    this = volume(4, faults={2: status(503)})
    ended = this.run(INDEX_FAILURE_COUNT="3", BACKOFF_LIMIT_PER_INDEX="3")
    assert ended.code == 0, ended.log
    assert this.manifest["results"]["0002"]["error"].endswith(" (still failing on the index's last attempt)")
    assert this.manifest["pages_failed"] == 1, (this.manifest["results"], ended.log)


def test_every_stored_file_parses_and_carries_the_stamp(volume: Make):
    this = volume(2)
    assert this.run(IMAGE_DIGEST="sha256:abc").code == 0
    alto = etree.fromstring(this.get(f"{this.prefix}/alto/0001.xml"))
    stamps = alto.findall(".//{*}Processing")
    assert [s.get("ID") for s in stamps][1:] == ["htrflow-batch"]
    described = [d.text for d in stamps[1].findall("{*}processingStepDescription")]
    assert described == ["image=sha256:abc", "htrflow-base=unknown"]
    page = etree.fromstring(this.get(f"{this.prefix}/page/0001.xml"))
    assert len(page.findall(".//{*}TextLine")) == 3


@pytest.mark.parametrize("written", ["steps: [\n\t- x", "", "steps:\n- step: Segmentatin\n  settings: {model: YOLO}\n"])
def test_a_pipeline_that_cannot_be_loaded_leaves_a_finished_volume_as_it_is(volume: Make, written: str):
    this = volume(3)
    assert this.run().code == 0
    before = {key for key in this.listing() if key.startswith(this.prefix)}
    this.pipeline.write_text(written)
    ended = this.run()
    assert ended.code == 13, ended.log
    assert before <= this.listing()


def test_with_resume_off_nothing_is_cleared_before_the_models_are_there(volume: Make):
    this = volume(3)
    assert this.run().code == 0
    before = {key for key in this.listing() if key.startswith(this.prefix)}
    this.use(steps(load_error="OSError: the cache is not there"))
    ended = this.run(RESUME="false")
    assert ended.code == 1, ended.log
    assert before <= this.listing()


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_streams_change_nothing(volume: Make, closed: str):
    this = volume(2)
    this.launcher = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh"]
    ended = this.run()
    assert ended.code == 0, ended.log
    assert this.manifest["pages_ok"] == 2


def test_a_parent_that_ignores_its_children_s_ends_changes_nothing(volume: Make):
    this = volume(2)
    this.launcher = ["/bin/sh", "-c", "trap '' CHLD; exec \"$@\"", "sh"]
    ended = this.run()
    assert ended.code == 0, ended.log
    assert this.manifest["pages_ok"] == 2


def test_what_can_be_handed_out_does_not_wait_for_the_next_look_round(volume: Make):
    """Nothing else wakes the run here: the store answers at once, and the pages are decoded long before the models are
    there."""
    with s3_double.running() as store:
        this = volume(3, endpoint=store.url)
        this.use(steps(load_seconds=1.5))
        run = this.start("batchpod.turning.WATCH_S=40", "supervisor.loop.TURN_S=40")
        run.until("gpu-0 loaded")
        assert this.origin is not None
        asked_meanwhile = this.origin.asked()
        ended = run.end(35)
    assert asked_meanwhile == 3, ended.log
    assert ended.code == 0, ended.log
    assert "COMPLETE 3 pages (3 processed)" in ended.last_line
