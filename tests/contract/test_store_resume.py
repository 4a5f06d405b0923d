"""What resume asks the store, and in which order it deletes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from actors import s3
from actors.messages import (
    Cease,
    Clear,
    ListStored,
    LogShipped,
    ProgressPut,
    PutProgress,
    ShipLog,
    StoredListed,
    StoreFailed,
    Uploaded,
    UploadFailed,
    UploadStarted,
)
from actors.uploader import resume
from actors.uploader.keys import Keys
from actors.uploader.store import Store
from actors.uploader.volume import Page
from tests.doubles import s3 as double
from tests.uploader_process import Workdir, uploader

KEYS = Keys("ns", "trocr-1", "R1")
LATER = datetime(2026, 1, 2, tzinfo=UTC)
EARLIER = LATER - timedelta(hours=1)
RECIPE = "r" * 64


@pytest.fixture
def bad() -> Iterator[double.Store]:
    with double.running() as store:
        yield store


@pytest.fixture
def store(bad: double.Store) -> Iterator[Store]:
    client = s3.client(bad.url, connections=resume.THREADS, attempts=1)
    yield Store(client, "results")
    client.close()


def pages(count: int) -> list[Page]:
    return [Page(n, f"https://i.example/{n}.jpg", f"digest{n}", "", None, None, None) for n in range(1, count + 1)]


def put_pages(bad: double.Store, count: int, at: datetime = EARLIER, **metadata: str) -> None:
    for number in range(1, count + 1):
        carried = {"source-digest": f"digest{number}", "page-size": "10x20"} | metadata
        headers = {f"x-amz-meta-{name.replace('_', '-')}": value for name, value in carried.items()}
        bad.objects[KEYS.page(number)] = double.Stored(b"<a/>", {}, at)
        bad.objects[KEYS.alto(number)] = double.Stored(b"<a/>", headers, at)


def put_manifest(bad: double.Store, count: int, at: datetime = LATER, **changes: Any) -> None:
    names = [f"{number:04d}" for number in range(1, count + 1)]
    document = {
        "recipe_digest": RECIPE,
        "results": {name: {"status": "ok", "seconds": 2.0} for name in names},
        "page_source_digests": {name: f"digest{int(name)}" for name in names},
        "page_sizes": {name: [30, 40] for name in names},
    } | changes
    bad.objects[KEYS.manifest] = double.Stored(orjson.dumps(document), {}, at)


def found(store: Store, wanted: list[Page], recipe: str = RECIPE) -> resume.Resume:
    return resume.find_done(store, KEYS, wanted, resume.list_stored(store, KEYS), recipe)


def test_a_manifest_newer_than_every_object_stands_for_the_requests_for_each(bad: double.Store, store: Store) -> None:
    bad.faults.page_size = 100
    put_pages(bad, 700)
    put_manifest(bad, 700)
    result = found(store, pages(700))
    assert (len(result.done), result.complete, bad.count("HEAD")) == (700, True, 0)
    assert result.done[700].size == (30, 40)
    assert result.done[700].entry == {"status": "skipped", "seconds": 2.0}


def test_a_manifest_with_an_older_recipe_text_still_says_which_recipe_it_was(bad: double.Store, store: Store) -> None:
    from actors.gpu.pipeline_file import recipe_digest

    text = "steps:\n- step: A\n"
    put_pages(bad, 2)
    put_manifest(bad, 2, recipe_digest=None, pipeline_yaml=text)
    assert len(found(store, pages(2), recipe_digest(text)).done) == 2
    assert bad.count("HEAD") == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"at": EARLIER},
        {"page_sizes": None},
        {"page_source_digests": None},
        {"recipe_digest": "other"},
        {"results": None},
    ],
)
def test_a_manifest_that_does_not_say_enough_has_the_pages_asked(
    bad: double.Store, store: Store, changes: dict[str, Any]
) -> None:
    put_pages(bad, 5, recipe_digest=RECIPE)
    put_manifest(bad, 5, **changes)
    result = found(store, pages(5))
    assert (len(result.done), bad.count("HEAD")) == (5, 5)
    assert result.done[1].size == (10, 20)


def test_half_a_pair_is_not_done_and_not_asked_about(bad: double.Store, store: Store) -> None:
    put_pages(bad, 3)
    del bad.objects[KEYS.page(1)], bad.objects[KEYS.alto(2)]
    assert set(found(store, pages(3)).done) == {3}
    assert bad.count("HEAD") == 1


def test_an_alto_that_cannot_be_read_has_its_page_done_again(bad: double.Store, store: Store) -> None:
    put_pages(bad, 2)
    del bad.objects[KEYS.alto(1)].headers["x-amz-meta-page-size"]
    bad.objects[KEYS.alto(1)].body = b"<alto"
    assert set(found(store, pages(2)).done) == {2}


def test_a_previous_manifest_that_is_no_json_counts_for_nothing(bad: double.Store, store: Store) -> None:
    put_pages(bad, 2)
    bad.objects[KEYS.manifest] = double.Stored(b"[1,", {}, LATER)
    result = found(store, pages(2))
    assert (len(result.done), result.complete) == (2, False)


def test_a_canvas_without_an_image_does_not_keep_a_volume_from_being_complete(bad: double.Store, store: Store) -> None:
    put_pages(bad, 1)
    put_manifest(bad, 2)
    results = {"0001": {"status": "ok"}, "0002": {"status": "failed", "error": "canvas has no image"}}
    put_manifest(bad, 2, results=results)
    wanted = [pages(1)[0], Page(2, "", None, "", None, None, "canvas has no image")]
    assert found(store, wanted).complete


def test_a_page_that_failed_before_is_tried_again(bad: double.Store, store: Store) -> None:
    put_pages(bad, 1)
    put_manifest(bad, 2, results={"0001": {"status": "ok"}, "0002": {"status": "failed"}})
    result = found(store, pages(2))
    assert (set(result.done), result.complete) == ({1}, False)


def test_a_store_error_while_asking_ends_it(bad: double.Store, store: Store) -> None:
    put_pages(bad, 50)
    bad.fail_first(99, 403, "AccessDenied", "HEAD")
    with pytest.raises(s3.StoreError):
        found(store, pages(50))


def test_the_manifest_goes_first_then_the_viewers_then_the_pages(bad: double.Store, store: Store) -> None:
    put_pages(bad, 3)
    put_manifest(bad, 3)
    done = {2: found(store, pages(3)).done[2]}
    assert resume.clear(store, KEYS, range(1, 3), done, lambda: False) == 2
    deleted = [request.key for request in bad.requests if request.method == "DELETE"]
    assert deleted[:2] == [KEYS.manifest, KEYS.viewer]
    assert set(deleted[2:]) == {KEYS.page(1), KEYS.alto(1)}
    assert {KEYS.page(2), KEYS.page(3), KEYS.alto(3)} <= set(bad.objects)


def test_nothing_is_deleted_once_the_run_is_ending(bad: double.Store, store: Store) -> None:
    put_pages(bad, 3)
    assert resume.clear(store, KEYS, range(1, 4), {}, lambda: True) == 0
    assert bad.count("DELETE") == 0


# ------------------------------------------------------------------------------------------- the process, with faults


@pytest.fixture
def workdir(bad: double.Store, tmp_path: Any) -> Workdir:
    made = Workdir(tmp_path / "work", bad.url, "results", {"prefix": "ns", "volume": "R1"})
    made.write_pages(3)
    return made


@pytest.mark.parametrize("refused", ["page/0002.xml", "alto/0002.xml"])
def test_an_upload_the_store_refuses_is_deferred_and_leaves_no_half(
    bad: double.Store, workdir: Workdir, refused: str
) -> None:
    bad.fail_first(1, 403, "AccessDenied", ending=refused)
    with uploader(workdir) as process:
        process.send(workdir.export(2))
        failed = process.take(UploadFailed)
        assert (failed.outcome, failed.store, failed.text_lost) == ("deferred", True, False)
        assert "AccessDenied" in failed.reason
        process.send(workdir.export(1))
        process.take(Uploaded)
        assert process.end() == 0
    assert {k for k in bad.objects if "/000" in k} == {KEYS.page(1), KEYS.alto(1)}
    assert workdir.exported == []


def test_a_ceasing_run_leaves_even_half_a_pair(bad: double.Store, workdir: Workdir) -> None:
    bad.fail_first(1, 403, "AccessDenied", ending="alto/0002.xml")
    with uploader(workdir) as process:
        process.send(Cease(), workdir.export(2))
        process.take(UploadFailed)
        assert process.end() == 0
    assert bad.count("DELETE") == 0
    assert KEYS.page(2) in bad.objects


def test_a_store_error_on_the_listing_is_passing(bad: double.Store, workdir: Workdir) -> None:
    bad.faults.answer = lambda request: (403, "AccessDenied") if request.method == "GET" else None
    with uploader(workdir) as process:
        failed = process.ask(ListStored(), StoreFailed)
        assert (failed.operation, failed.permanent) == ("ListStored", False)
        assert process.end() == 0


def test_progress_and_log_are_given_up_without_a_word_more_than_one(bad: double.Store, workdir: Workdir) -> None:
    bad.faults.answer = lambda request: (403, "AccessDenied") if "/000" not in request.key else None
    with uploader(workdir) as process:
        for _ in range(3):
            assert not process.ask(PutProgress("{}"), ProgressPut).ok
            assert not process.ask(ShipLog(False), LogShipped).ok
        process.send(workdir.export(1))
        process.take(Uploaded)
        assert process.end() == 0
    assert process.log.count("progress.json could not be stored") == 1
    assert process.log.count("run log could not be stored") == 1


def test_a_log_whose_claim_failed_is_claimed_later(bad: double.Store, workdir: Workdir) -> None:
    key = "status/logs/trocr-1/R1.txt"
    bad.objects[key] = double.Stored(b"an earlier attempt's", {"x-amz-meta-run-id": "run-0"}, EARLIER)
    bad.fail_first(1, 403, "AccessDenied", ending=key)
    workdir.log.append(b"ours\n")
    with uploader(workdir) as process:
        while not process.ask(ShipLog(False), LogShipped).ok:
            pass
        assert process.end() == 0
    assert bad.objects[key].body == b"ours\n"


def test_a_restarted_uploader_does_not_claim_the_log_again(bad: double.Store, workdir: Workdir) -> None:
    key = "status/logs/trocr-1/R1.txt"
    workdir.log.append(b"ours\n")
    with uploader(workdir) as process:
        process.ask(ShipLog(True), LogShipped)
        assert process.end() == 0
    bad.objects[key] = double.Stored(b"theirs", {"x-amz-meta-run-id": "run-2"}, LATER)
    with uploader(workdir) as process:
        process.ask(ShipLog(True), LogShipped)
        assert process.end() == 0
    assert bad.objects[key].body == b"theirs"


def test_an_unchanged_log_is_not_shipped_again(bad: double.Store, workdir: Workdir) -> None:
    workdir.log.append(b"ours\n")
    with uploader(workdir) as process:
        for _ in range(4):
            assert process.ask(ShipLog(False), LogShipped).ok
        assert process.end() == 0
    assert bad.count("PUT", "R1.txt") == 1


def test_a_store_that_never_answers_does_not_hold_the_process_back(bad: double.Store, workdir: Workdir) -> None:
    with uploader(workdir) as process:
        process.ask(ListStored(), StoredListed)
        bad.faults.black_hole = True
        process.send(workdir.export(1), PutProgress("{}"), Clear())
        assert process.end(within_s=0.5) == 0
    assert "the time to finish uploads is over" in process.log


def test_progress_and_log_go_on_and_the_loop_beats_while_uploads_hang(bad: double.Store, workdir: Workdir) -> None:
    bad.faults.hold = "/000"
    with uploader(workdir) as process:
        process.send(*(workdir.export(number) for number in (1, 2, 3)))
        process.take(UploadStarted)
        before = process.incarnation.marks.beat[0]
        assert process.ask(PutProgress("{}"), ProgressPut).ok
        assert process.ask(ShipLog(False), LogShipped).ok
        while process.incarnation.marks.beat[0] <= before + 1:
            process.poll()
        assert {mark.step for mark in process.incarnation.marks.tasks()} == {"upload"}
        assert not [message for message in process.messages if isinstance(message, Uploaded)]
        bad.faults.hold = ""
        for _ in range(3):
            process.take(Uploaded)
        assert process.end() == 0


def test_of_the_progress_that_waits_only_the_newest_is_stored(bad: double.Store, workdir: Workdir) -> None:
    bad.faults.hold = "progress.json"
    with uploader(workdir) as process:
        process.send(*(PutProgress(f'{{"n": {number}}}') for number in range(6)))
        process.ask(ListStored(), StoredListed)
        bad.faults.hold = ""
        process.take(ProgressPut)
        assert process.end() == 0
    assert bad.objects[KEYS.progress].body == b'{"n": 5}'
    assert bad.count("PUT", "progress.json") <= 2
