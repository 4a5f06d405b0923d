"""A store in trouble while pages come out of the GPU: slow, refusing, gone silent."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.doubles import s3 as s3_double
from tests.doubles.s3 import Request, Store
from tests.volume import Volume, steps, wait_for

Make = Callable[..., Volume]
HURRY = ("batchpod.ending.UPLOADS_S=1.5", "batchpod.ending.LAST_WORDS_S=1.5")


@pytest.fixture
def store() -> Iterator[Store]:
    with s3_double.running() as running:
        yield running


def pages_in(store: Store) -> set[str]:
    """The pages of which both files are stored."""
    kinds = [{k.rpartition("/")[2] for k in list(store.objects) if f"/{kind}/" in k} for kind in ("page", "alto")]
    return kinds[0] & kinds[1]


def exported_bytes(this: Volume) -> int:
    total = 0
    for path in this.workdir.glob("gpu-*/*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_a_disk_that_fills_up_while_a_run_ends_costs_no_page_and_no_word(volume: Make, store: Store):
    this = volume(12, endpoint=store.url)
    store.faults.hold = "/page/"
    run = this.start()
    wait_for(lambda: len(list(this.workdir.glob("gpu-0.1/*.page.xml"))) == 12, "every page exported", running=run)
    (this.workdir / "interim.json.new").symlink_to("/dev/full")
    run.kill(signal.SIGTERM)
    run.until(r"gpu-0#1 (killed|ended)")
    store.faults.hold = ""
    ended = run.end()
    assert ended.code == 143, ended.log
    assert ended.message is not None
    assert (ended.message["stage"], ended.message["error"]) == ("stream", "SIGTERM")
    assert len(pages_in(store)) == 12
    assert "iiif.json is not republished now: [Errno 28] No space left on device" in ended.log
    assert "Traceback" not in ended.log


def test_pages_that_only_the_store_refuses_are_not_blamed_on_the_model(volume: Make, store: Store):
    def refuse(request: Request) -> tuple[int, str] | None:
        return (500, "InternalError") if request.method == "PUT" and "/page/" in request.key else None

    this = volume(3, endpoint=store.url)
    store.faults.answer = refuse
    ended = this.run(INDEX_FAILURE_COUNT="3", BACKOFF_LIMIT_PER_INDEX="3")
    assert ended.code == 1, ended.log
    assert "all 3 processed pages failed, the first because: not stored: PUT" in ended.last_line
    assert "the results store does not do what the run asks of it" in ended.last_line


def test_a_store_that_is_slow_and_never_fails_holds_back_the_gpu_and_bounds_what_waits(volume: Make, store: Store):
    this = volume(30, endpoint=store.url)
    backlog, page_bytes, in_flight = 40_000, 12_000, 2
    this.use(steps())
    run = this.start(UPLOAD_CONCURRENCY="1", UPLOAD_BACKLOG_BYTES=str(backlog), GPU_PAGES=str(in_flight))
    run.until(r"stage stream")
    store.faults.delay_s = 0.1
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, exported_bytes(this))
        return run.process.poll() is not None

    wait_for(over, "the end", 120)
    ended = run.end()
    assert ended.code == 0, ended.log
    assert len(pages_in(store)) == 30
    assert most > backlog / 2
    assert most <= backlog + in_flight * page_bytes, most
    assert ended.log.count("WARNING the store is slow") == 1
    stalled = re.search(rb'"store_stall_seconds": ?([0-9.]+)', store.objects[f"{this.prefix}/manifest.json"].body)
    assert stalled is not None
    assert float(stalled[1]) > 0


def test_a_store_that_begins_to_refuse_ends_the_run_and_fails_no_page(volume: Make, store: Store):
    this = volume(30, endpoint=store.url)
    this.use(steps(seconds_per_image=0.05))
    run = this.start()
    run.until_stored(3)

    def answer(request: Request) -> tuple[int, str] | None:
        return (403, "AccessDenied") if request.method == "PUT" and request.key.endswith(".xml") else None

    store.faults.answer = answer
    ended = run.end()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert ended.message["error"].startswith("5 pages in a row could not be stored")
    assert not re.search(r"^page \d+ failed", ended.log, re.MULTILINE)
    assert f"{this.prefix}/manifest.json" not in store.objects
    kinds = [{k for k in store.objects if f"/{kind}/" in k} for kind in ("page", "alto")]
    assert len(kinds[0]) == len(kinds[1]) >= 3
    store.faults.answer = lambda request: None
    again = this.run()
    assert again.code == 0, again.log
    assert len(pages_in(store)) == 30


def test_a_store_that_refuses_some_requests_and_takes_them_again_costs_nothing(volume: Make, store: Store):
    this = volume(10, endpoint=store.url)
    this.use(steps())
    store.fail_first(6, 503, "SlowDown", ending=".xml")
    ended = this.run()
    assert ended.code == 0, ended.log
    assert len(pages_in(store)) == 10


def test_a_stop_while_the_store_has_gone_silent_ends_within_its_budget(volume: Make, store: Store):
    this = volume(20, endpoint=store.url)
    this.use(steps(seconds_per_image=0.05))
    run = this.start(*HURRY)
    run.until_stored(3)
    store.faults.black_hole = True
    run.kill(signal.SIGTERM)
    ended = run.end(30)
    assert ended.code == 143, ended.log
    assert ended.message == {"stage": "stream", "permanent": False, "error": "SIGTERM"}
    assert ended.last_line.startswith("transient failure in stream: SIGTERM — "), ended.log
    assert this.left_in_workdir() == set()


def test_a_killed_uploader_leaves_no_half_object_and_its_pages_are_stored_again(volume: Make, store: Store):
    this = volume(12, endpoint=store.url)
    this.use(steps())
    store.faults.hold = "/alto/"
    run = this.start(UPLOAD_CONCURRENCY="4")
    wait_for(lambda: sum("/page/" in k for k in list(store.objects)) >= 4, "four pages half stored", 60, run)
    psutil.Process(run.children("uploader")[-1]).kill()
    run.until(r"pages are stored again after the uploader's death")
    store.faults.hold = ""
    ended = run.end()
    assert ended.code == 0, ended.log
    assert len(pages_in(store)) == 12
    assert all(stored.body.rstrip().endswith(b">") for key, stored in store.objects.items() if key.endswith(".xml"))


def test_a_page_that_hangs_on_its_way_to_the_store_is_failed_the_second_time(volume: Make, store: Store):
    this = volume(8, endpoint=store.url)
    this.use(steps())
    store.faults.hold = "/alto/0003"
    ended = this.start("batchpod.flow.outlet.STORE_S=4").end()
    assert ended.code == 0, ended.log
    assert "page 0003 failed: its export made no progress for 4 s, 2 times" in ended.log
    assert len(pages_in(store)) == 7
