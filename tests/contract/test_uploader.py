"""The uploader as a process against a real S3: a volume from the first listing to manifest.json, and again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from lxml import etree

from actors import schemas
from actors.messages import (
    Cease,
    Clear,
    Cleared,
    DumpPut,
    InterimPublished,
    ListStored,
    LogShipped,
    ProgressPut,
    Publish,
    Published,
    PublishInterim,
    PutDump,
    PutProgress,
    PutSource,
    ShipLog,
    SourcePut,
    StoredListed,
    StoredVerified,
    StoreFailed,
    Uploaded,
    UploadFailed,
    UploadStarted,
    VerifyStored,
)
from tests.exports import Files, Tree, hand_made, letter
from tests.gpu_process import first_on_the_path
from tests.uploader_process import PIPELINE, UploaderProcess, Workdir, page, uploader
from tools.localstack import LocalStack

BASE = "ns/å b/trocr-1/R0001203"
URLS = "https://results.example/base/ns/%C3%A5%20b/trocr-1/R0001203"


@pytest.fixture
def workdir(tmp_path: Path, localstack: LocalStack, bucket: str) -> Workdir:
    return Workdir(tmp_path / "work", localstack.url, bucket)


def keys(s3: Any, bucket: str) -> set[str]:
    return {entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", [])}


def read(s3: Any, bucket: str, key: str) -> Any:
    return orjson.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())


def upload(process: UploaderProcess, workdir: Workdir, *numbers: int) -> None:
    for number in numbers:
        process.send(workdir.export(number))
    for _ in numbers:
        process.take(Uploaded)


def whole_run(workdir: Workdir, pages: int) -> None:
    """A run in which every page comes out."""
    with uploader(workdir) as process:
        process.ask(ListStored(), StoredListed)
        process.ask(Clear(), Cleared)
        upload(process, workdir, *range(1, pages + 1))
        process.ask(Publish(workdir.write_outcomes(dict.fromkeys(range(1, pages + 1), "ok"))), Published)
        assert process.end() == 0


def again(workdir: Workdir, name: str, **overrides: Any) -> Workdir:
    """The next run's scratch folder, with the same page list."""
    following = Workdir(workdir.root.parent / name, workdir.endpoint, workdir.bucket, workdir.overrides | overrides)
    (following.root / "pages.json").write_bytes((workdir.root / "pages.json").read_bytes())
    return following


def test_a_volume_is_uploaded_verified_and_published(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(3)
    with uploader(workdir) as process:
        assert process.ask(ListStored(), StoredListed) == StoredListed(0, False)
        assert process.ask(Clear(), Cleared).deleted == 0
        upload(process, workdir, 1, 3)
        assert {process.take(UploadStarted).page, process.take(UploadStarted).page} == {1, 3}
        outcomes = workdir.write_outcomes({1: "ok", 2: "failed", 3: "ok"}, wall_seconds=9.5)
        interim = process.ask(PublishInterim(workdir.write_outcomes({1: "ok"})), InterimPublished)
        assert (interim.ok, interim.pages) == (True, 1)
        outcomes = workdir.write_outcomes({1: "ok", 2: "failed", 3: "ok"}, wall_seconds=9.5)
        assert process.ask(VerifyStored(outcomes), StoredVerified).missing == 0
        assert process.ask(Publish(outcomes), Published).viewer
        assert process.end() == 0
    assert workdir.exported == []
    assert keys(s3, bucket) >= {f"{BASE}/{name}" for name in ("iiif.json", "pipeline.yaml", "manifest.json")}
    types = {
        key.removeprefix(f"{BASE}/"): s3.head_object(Bucket=bucket, Key=key)["ContentType"] for key in keys(s3, bucket)
    }
    assert types == {
        "alto/0001.xml": "application/xml",
        "alto/0003.xml": "application/xml",
        "page/0001.xml": "application/xml",
        "page/0003.xml": "application/xml",
        "iiif.json": "application/json",
        "pipeline.yaml": "text/yaml",
        "manifest.json": "application/json",
        "status/logs/trocr-1/R0001203.txt": "text/plain; charset=utf-8",
    }
    manifest = read(s3, bucket, f"{BASE}/manifest.json")
    assert manifest["results"] == {
        "0001": {"status": "ok", "seconds": 1.5, "lines": 4},
        "0002": {"status": "failed", "seconds": 1.5, "error": "because"},
        "0003": {"status": "ok", "seconds": 1.5, "lines": 4},
    }
    assert (manifest["pages"], manifest["pages_ok"], manifest["pages_failed"]) == (3, 2, 1)
    assert (manifest["pipeline_yaml"], manifest["wall_seconds"]) == (PIPELINE, 9.5)
    assert manifest["viewer_url"] == f"{URLS}/iiif.json"
    viewer = read(s3, bucket, f"{BASE}/iiif.json")
    assert [canvas["id"] for canvas in viewer["items"]] == [f"{URLS}/canvas/0001", f"{URLS}/canvas/0003"]
    assert viewer["items"][1]["seeAlso"][0]["id"] == f"{URLS}/alto/0003.xml"


def test_the_alto_carries_what_the_next_run_needs(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(1)
    with uploader(workdir) as process:
        upload(process, workdir, 1)
        assert process.end() == 0
    carried = s3.head_object(Bucket=bucket, Key=f"{BASE}/alto/0001.xml")["Metadata"]
    assert carried["page-size"] == "500x600"
    assert len(carried["source-digest"]) == len(carried["recipe-digest"]) == 64


def test_a_second_run_finds_everything_done(workdir: Workdir) -> None:
    workdir.write_pages(3)
    whole_run(workdir, 3)
    following = again(workdir, "second")
    with uploader(following) as process:
        assert process.ask(ListStored(), StoredListed) == StoredListed(3, True)
        assert process.end() == 0
    entry = following.done["done"]["2"]
    assert entry == {"width": 500, "height": 600, "entry": {"status": "skipped", "seconds": 1.5, "lines": 4}}
    assert following.done["previous"] is True


def test_without_the_previous_manifest_the_files_themselves_say_what_is_done(
    workdir: Workdir, s3: Any, bucket: str
) -> None:
    workdir.write_pages(3)
    whole_run(workdir, 3)
    s3.delete_object(Bucket=bucket, Key=f"{BASE}/manifest.json")
    s3.delete_object(Bucket=bucket, Key=f"{BASE}/page/0002.xml")
    following = again(workdir, "second")
    with uploader(following) as process:
        assert process.ask(ListStored(), StoredListed) == StoredListed(2, False)
        assert process.ask(Clear(), Cleared).deleted == 1
        assert process.end() == 0
    assert set(following.done["done"]) == {"1", "3"}
    assert following.done["done"]["1"]["width"] == 500
    assert {k for k in keys(s3, bucket) if "/000" in k} == {
        f"{BASE}/{f}/{n}.xml" for f in ("page", "alto") for n in ("0001", "0003")
    }


def test_a_changed_source_is_done_again_and_a_new_signature_is_not(workdir: Workdir, s3: Any, bucket: str) -> None:
    urls = [f"https://images.example/{n}.jpg?v=1&sig=old" for n in (1, 2)]
    workdir.write_page_list([page(url) for url in urls])
    whole_run(workdir, 2)
    following = again(workdir, "second")
    following.write_page_list(
        [page("https://images.example/1.jpg?v=1&sig=new"), page("https://images.example/2.jpg?v=2&sig=old")]
    )
    with uploader(following) as process:
        assert process.ask(ListStored(), StoredListed) == StoredListed(1, False)
        assert process.ask(Clear(), Cleared).deleted == 2
        assert process.end() == 0
    assert set(following.done["done"]) == {"1"}
    assert not {f"{BASE}/manifest.json", f"{BASE}/iiif.json"} & keys(s3, bucket)


def test_a_page_of_another_recipe_is_done_again_and_one_without_a_mark_is_kept(
    workdir: Workdir, s3: Any, bucket: str
) -> None:
    workdir.write_pages(2)
    whole_run(workdir, 2)
    key = f"{BASE}/alto/0002.xml"
    kept = s3.head_object(Bucket=bucket, Key=key)["Metadata"]
    s3.copy_object(
        Bucket=bucket,
        Key=key,
        CopySource={"Bucket": bucket, "Key": key},
        MetadataDirective="REPLACE",
        Metadata={"source-digest": kept["source-digest"]},
    )
    following = again(workdir, "second")
    (following.root / "pipeline.yaml").write_text(PIPELINE + "- step: OrderLines\n")
    with uploader(following) as process:
        assert process.ask(ListStored(), StoredListed).done == 1
        assert process.end() == 0
    assert following.done["done"]["2"]["height"] == 600  # read from the file: it has no page-size either
    assert "1 stored pages were made by another recipe" in process.log


def test_a_page_without_a_digest_is_judged_by_the_previous_manifest(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(2)
    whole_run(workdir, 2)
    for number in (1, 2):
        key = f"{BASE}/alto/000{number}.xml"
        s3.copy_object(
            Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": key}, MetadataDirective="REPLACE", Metadata={}
        )
    manifest = read(s3, bucket, f"{BASE}/manifest.json")
    del manifest["page_source_digests"]
    manifest["page_sources"]["0002"] = "https://images.example/other.jpg"
    s3.put_object(Bucket=bucket, Key=f"{BASE}/manifest.json", Body=orjson.dumps(manifest))
    following = again(workdir, "second")
    with uploader(following) as process:
        assert process.ask(ListStored(), StoredListed).done == 1
        assert process.end() == 0
    assert set(following.done["done"]) == {"1"}


def test_with_resume_off_nothing_is_done_and_all_is_cleared(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(2)
    whole_run(workdir, 2)
    following = again(workdir, "second", resume=False)
    with uploader(following) as process:
        assert process.ask(ListStored(), StoredListed) == StoredListed(0, False)
        assert process.ask(Clear(), Cleared).deleted == 4
        assert process.end() == 0
    assert not [key for key in keys(s3, bucket) if key.startswith(BASE) and not key.endswith("pipeline.yaml")]


def test_pages_beyond_this_run_are_left_and_appear_in_no_document(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(3)
    whole_run(workdir, 3)
    following = again(workdir, "second")
    following.write_pages(2)
    with uploader(following) as process:
        assert process.ask(ListStored(), StoredListed) == StoredListed(2, False)
        process.ask(Publish(following.write_outcomes({1: "skipped", 2: "skipped"})), Published)
        assert process.end() == 0
    assert f"{BASE}/alto/0003.xml" in keys(s3, bucket)
    manifest = read(s3, bucket, f"{BASE}/manifest.json")
    assert list(manifest["results"]) == list(manifest["page_sources"]) == ["0001", "0002"]
    assert manifest["results"]["0001"] == {"status": "skipped", "seconds": 1.5, "lines": 4}
    assert len(read(s3, bucket, f"{BASE}/iiif.json")["items"]) == 2


def other_schemas(folder: Path, change: Callable[[str], str]) -> None:
    """A copy of the installed schemas on an import path of its own, with the ALTO's changed."""
    found = schemas.find()
    assert found is not None
    copy = folder / "htrflow" / "serialization" / "schemas"
    shutil.copytree(found.alto.parent, copy)
    alto = copy / found.alto.name
    alto.write_text(change(alto.read_text()))


def test_the_schemas_are_read_before_any_page(workdir: Workdir, tmp_path: Path) -> None:
    """While other threads parse, one that imports another may not be read: the page would be lost."""
    folder = tmp_path / "others"
    other_schemas(folder, lambda text: text.replace('name="Layout"', 'name="Elsewhere"'))
    workdir.write_pages(1)
    with first_on_the_path(folder), uploader(workdir) as process:
        process.ask(ListStored(), StoredListed)
        shutil.rmtree(folder)
        process.ask(workdir.export(1), Uploaded)
        assert process.end() == 0
    assert "page 0001: the ALTO is published and is not valid: line " in process.log


def test_a_schema_that_cannot_be_read_costs_no_page(workdir: Workdir, tmp_path: Path) -> None:
    folder = tmp_path / "others"
    other_schemas(folder, lambda text: text[: len(text) // 2])
    workdir.write_pages(1)
    with first_on_the_path(folder), uploader(workdir) as process:
        process.ask(workdir.export(1), Uploaded)
        assert process.end() == 0
    assert "page 0001: the ALTO is published and is not valid: its schema " in process.log
    assert "alto-4-4.xsd cannot be read: " in process.log


def test_a_page_missing_at_verify_is_named(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(3)
    with uploader(workdir) as process:
        upload(process, workdir, 1, 2)
        s3.delete_object(Bucket=bucket, Key=f"{BASE}/page/0002.xml")
        outcomes = workdir.write_outcomes({1: "ok", 2: "ok", 3: "failed"})
        assert process.ask(VerifyStored(outcomes), StoredVerified).missing == 1
        assert process.end() == 0
    assert orjson.loads((workdir.root / "missing.json").read_bytes()) == {"missing": [2]}


def test_a_page_whose_own_output_is_bad_is_failed_and_the_next_is_stored(
    workdir: Workdir, s3: Any, bucket: str
) -> None:
    workdir.write_pages(4)
    no_text = hand_made(letter())
    no_text.alto = no_text.alto.replace(b"CONTENT=", b"STYLE=")
    with uploader(workdir) as process:
        process.send(workdir.export(1, files=Files(b"<PcGts", hand_made(letter()).alto, letter().sidecar)))
        failed = process.take(UploadFailed)
        assert (failed.outcome, failed.store, failed.text_lost) == ("failed", False, False)
        assert failed.reason.startswith("malformed XML")
        process.send(workdir.export(2, files=no_text))
        failed = process.take(UploadFailed)
        assert (failed.outcome, failed.store, failed.text_lost) == ("failed", False, True)
        assert failed.reason.startswith("recognized text not exported")
        asked = workdir.export(3)
        (workdir.root / "export" / "0003.page.xml").unlink()
        failed = process.ask(asked, UploadFailed)
        assert (failed.outcome, failed.reason) == ("failed", "the export is not whole: 0003.page.xml is missing")
        upload(process, workdir, 4)
        assert process.end() == 0
    assert workdir.exported == []
    assert {key for key in keys(s3, bucket) if "/000" in key} == {f"{BASE}/{f}/0004.xml" for f in ("page", "alto")}


def test_an_upload_asked_for_again_converges(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(1)
    with uploader(workdir) as process:
        upload(process, workdir, 1)
        upload(process, workdir, 1)
        assert process.end() == 0
    alto = etree.fromstring(s3.get_object(Bucket=bucket, Key=f"{BASE}/alto/0001.xml")["Body"].read())
    assert len(alto.findall("{*}Description/{*}Processing[@ID='htrflow-batch']")) == 1


def test_a_blank_page_is_uploaded_in_both_formats(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(1)
    with uploader(workdir) as process:
        process.send(workdir.export(1, Tree(500, 600, ())))
        assert process.take(Uploaded).lines == 0
        assert process.end() == 0
    assert {key for key in keys(s3, bucket) if "/000" in key} == {f"{BASE}/{f}/0001.xml" for f in ("page", "alto")}


def test_a_bucket_that_does_not_exist_is_permanent(workdir: Workdir) -> None:
    workdir.write_pages(1)
    workdir.overrides["bucket"] = "there-is-no-such-bucket"
    with uploader(workdir) as process:
        failed = process.ask(ListStored(), StoreFailed)
        assert (failed.operation, failed.permanent) == ("ListStored", True)
        assert "NoSuchBucket" in failed.error
        assert process.end() == 0


def test_a_bucket_name_that_cannot_be_one_is_permanent(workdir: Workdir) -> None:
    workdir.write_pages(1)
    workdir.overrides["bucket"] = "no/such name"
    with uploader(workdir) as process:
        assert process.ask(ListStored(), StoreFailed).permanent
        assert process.end() == 0


def test_the_built_source_manifest_lies_under_sources(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(1)
    (workdir.root / "source.json").write_bytes(b'{"type": "Manifest"}')
    with uploader(workdir) as process:
        process.ask(PutSource(), SourcePut)
        assert process.end() == 0
    key = "ns/å b/sources/trocr-1/R0001203/manifest.json"
    assert s3.head_object(Bucket=bucket, Key=key)["ContentType"] == "application/json"


def test_progress_log_and_dump_are_stored_where_readers_look(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(1)
    (workdir.root / "dump.json").write_bytes(b"{}")
    workdir.log.append(b"GET https://user:pw@images.example/a.jpg?token=s3cr3t failed\n")
    with uploader(workdir) as process:
        assert process.ask(PutProgress('{"stage": "stream"}'), ProgressPut).ok
        assert process.ask(PutDump(str(workdir.root / "dump.json")), DumpPut).ok
        workdir.log.append(b"the last line\n")
        assert process.ask(ShipLog(True), LogShipped) == LogShipped(True, True)
        assert process.end() == 0
    progress = s3.head_object(Bucket=bucket, Key=f"{BASE}/progress.json")
    assert (progress["ContentType"], progress["CacheControl"]) == ("application/json", "no-store")
    assert s3.head_object(Bucket=bucket, Key="status/dumps/trocr-1/R0001203.json")["ContentType"] == "application/json"
    log = s3.get_object(Bucket=bucket, Key="status/logs/trocr-1/R0001203.txt")
    assert log["Body"].read() == b"GET https://images.example/a.jpg failed\nthe last line\n"
    assert log["Metadata"] == {"run-id": "run-1", "attempt": "0"}


def test_a_log_that_another_run_has_claimed_is_left_to_it(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(1)
    workdir.log.append(b"ours\n")
    key = "status/logs/trocr-1/R0001203.txt"
    with uploader(workdir) as process:
        process.ask(ShipLog(False), LogShipped)
        s3.put_object(Bucket=bucket, Key=key, Body=b"theirs\n", Metadata={"run-id": "run-2"})
        workdir.log.append(b"more\n")
        process.ask(ShipLog(True), LogShipped)
        assert process.end() == 0
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"theirs\n"


def test_a_run_that_replaces_another_claims_the_log_at_its_start(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(1)
    key = "status/logs/trocr-1/R0001203.txt"
    s3.put_object(Bucket=bucket, Key=key, Body=b"theirs\n", Metadata={"run-id": "run-0"})
    workdir.log.append(b"ours\n")
    with uploader(workdir) as process:
        assert process.end() == 0
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"ours\n"


def test_a_ceasing_run_uploads_on_and_deletes_and_publishes_nothing(workdir: Workdir, s3: Any, bucket: str) -> None:
    workdir.write_pages(2)
    whole_run(workdir, 2)
    following = again(workdir, "second", resume=False)
    with uploader(following) as process:
        process.ask(ListStored(), StoredListed)
        process.send(Cease(), Clear(), PublishInterim("none"), Publish("none"))
        upload(process, following, 1)
        assert process.end() == 0
    assert {f"{BASE}/manifest.json", f"{BASE}/iiif.json", f"{BASE}/alto/0002.xml"} <= keys(s3, bucket)


def test_a_page_list_that_is_not_there_is_said_and_costs_nothing_else(workdir: Workdir) -> None:
    with uploader(workdir) as process:
        failed = process.ask(ListStored(), StoreFailed)
        assert not failed.permanent
        assert "pages.json" in failed.error
        assert process.end() == 0


def test_a_full_workdir_is_told_from_a_store_that_fails(workdir: Workdir) -> None:
    workdir.write_pages(1)
    workdir.overrides["done_path"] = "/dev/full"
    with uploader(workdir) as process:
        failed = process.ask(ListStored(), StoreFailed)
        assert (failed.permanent, failed.workdir_full) == (False, True)
        assert failed.error.startswith("the workdir is full: ListStored could not be done: ")
        assert process.end() == 0
    assert "Traceback" not in process.log


def test_credentials_that_cannot_be_read_are_the_answer_to_every_request(
    workdir: Workdir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workdir.write_pages(1)
    (tmp_path / "credentials").write_text("aws_access_key_id = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with uploader(workdir) as process:
        for _ in range(2):
            failed = process.ask(ListStored(), StoreFailed)
            assert (failed.permanent, failed.workdir_full) == (False, False)
            assert str(tmp_path / "credentials") in failed.error
        page_failed = process.ask(workdir.export(1), UploadFailed)
        assert (page_failed.outcome, page_failed.store) == ("deferred", True)
        assert not process.ask(PutProgress("{}"), ProgressPut).ok
        assert not process.ask(ShipLog(True), LogShipped).ok
        assert process.end() == 0
    assert "Traceback" not in process.log


@pytest.mark.parametrize("text", ["x: !!int ''", "steps: &a [{step: A, settings: {z: *a}}]", "\udcff\udcfe\0"])
def test_a_pipeline_file_that_nobody_can_read_costs_the_uploader_nothing(workdir: Workdir, text: str) -> None:
    workdir.write_pages(1)
    (workdir.root / "pipeline.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with uploader(workdir) as process:
        assert process.ask(ListStored(), StoredListed) == StoredListed(0, False)
        assert process.end() == 0
