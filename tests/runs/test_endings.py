"""How runs end that do not end well: told to stop at any stage, a store or an origin that is down, bad settings."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.small_disk import small_disk
from tests.volume import Ended, Volume, steps
from tools.origin import delay, reset, silent, status

Make = Callable[..., Volume]
STAGES = ("setup", "resume", "load", "stream", "verify", "publish")


def assert_stopped(this: Volume, ended: Ended) -> None:
    assert ended.code == 143, ended.log
    assert ended.message is not None
    assert ended.message["error"] == "SIGTERM"
    assert ended.message["permanent"] is False
    assert ended.last_line.startswith(f"transient failure in {ended.message['stage']}: SIGTERM — ")
    assert this.left_in_workdir() == set()


@contextmanager
def blackhole() -> Iterator[str]:
    """A store that takes every connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("stage", STAGES)
def test_a_stop_at_any_stage_ends_with_its_message_and_leaves_nothing(volume: Make, stage: str):
    this = volume(6)
    this.use(steps(seconds_per_image=0.1, load_seconds=0.3))
    run = this.start()
    run.until(rf"stage {stage}$")
    children = psutil.Process(run.process.pid).children(recursive=True)
    run.kill(signal.SIGTERM)
    ended = run.end()
    if ended.code != 0 or stage != "publish":
        assert_stopped(this, ended)
        assert ended.message is not None
        assert STAGES.index(ended.message["stage"]) >= STAGES.index(stage)
        assert this.json("progress.json")["stage"] == "failed"
        assert this.run_log.rstrip().endswith(ended.last_line)
    assert not psutil.wait_procs(children, timeout=5)[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_that_mean_stop_do_the_same_and_a_second_one_changes_nothing(volume: Make, number: int):
    this = volume(6)
    this.use(steps(seconds_per_image=0.2))
    run = this.start()
    run.until(r"^page \d+ ok")
    run.kill(number)
    run.kill(signal.SIGTERM)
    assert_stopped(this, run.end())


def test_a_stop_keeps_what_was_exported_and_the_next_run_does_the_rest(volume: Make):
    this = volume(8)
    this.use(steps(seconds_per_image=0.1))
    run = this.start()
    run.until(r"^page \d+ ok")
    time.sleep(random.Random(7).uniform(0, 0.5))
    run.kill(signal.SIGTERM)
    assert_stopped(this, run.end())
    kept = this.pages_stored("alto")
    assert kept
    assert kept == this.pages_stored("page")
    ended = this.run()
    assert ended.code == 0, ended.log
    assert f"resume: {len(kept)} done" in ended.log
    assert this.manifest["pages_ok"] == 8


@pytest.mark.parametrize("seed", range(20) if os.environ.get("BATCHPOD_CHAOS") == "long" else range(2))
def test_a_stop_at_a_random_moment_ends_with_its_message_and_leaves_nothing(volume: Make, seed: int):
    """`make chaos` tries more moments; a second SIGTERM comes at a random moment after the first."""
    chance = random.Random(seed)
    this = volume(12)
    this.use(steps(seconds_per_image=0.05, load_seconds=0.2))
    run = this.start(GPU_STANDBY="true", LOG_SHIP_SECONDS="0.5")
    run.until(r"fetcher#1 started")
    children = psutil.Process(run.process.pid).children(recursive=True)
    time.sleep(chance.uniform(0, 6))
    with contextlib.suppress(psutil.NoSuchProcess):
        children += psutil.Process(run.process.pid).children(recursive=True)
    run.kill(signal.SIGTERM)
    time.sleep(chance.uniform(0, 0.5))
    run.kill(signal.SIGTERM)
    ended = run.end()
    if ended.code:
        assert_stopped(this, ended)
        assert this.run_log.rstrip().endswith(ended.last_line)
        assert this.pages_stored() == this.pages_stored("alto")
    assert this.left_in_workdir() == set()
    assert not psutil.wait_procs(children, timeout=5)[1]


def test_a_stop_while_the_store_is_a_black_hole_ends_within_its_budget(volume: Make):
    with blackhole() as endpoint:
        this = volume(2, endpoint=endpoint)
        run = this.start()
        run.until(r"stage resume$")
        run.kill(signal.SIGTERM)
        ended = run.end(100)
        assert_stopped(this, ended)
        assert ended.message is not None
        assert ended.message["stage"] == "resume"


def test_a_bucket_that_does_not_exist_ends_the_run_before_any_model_is_loaded(volume: Make):
    this = volume(2)
    ended = this.run(S3_BUCKET="no-such-bucket-here")
    assert ended.code == 13, ended.log
    assert ended.message is not None
    assert ended.message["stage"] == "resume"
    assert "no-such-bucket-here" in ended.message["error"]
    assert " loaded " not in ended.log


def test_a_store_that_refuses_connections_is_transient(volume: Make):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    this = volume(2, endpoint=f"http://127.0.0.1:{port}")
    ended = this.run()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert ended.message["stage"] == "resume"


def test_a_disk_that_has_no_room_for_the_models_links_is_named(volume: Make):
    this = volume(2)
    this.use(steps(model="README.md"))  # A path that is there where the run is started, and is linked to.
    with small_disk(this.workdir, "nr_inodes=9"):
        ended = this.run()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert (ended.message["stage"], ended.message["permanent"]) == ("load", False)
    assert "the working directory has no room left: give WORKDIR_PATH more room" in ended.last_line


def test_images_that_are_all_too_large_are_not_blamed_on_the_model(volume: Make):
    this = volume(3)
    ended = this.run(MAX_IMAGE_PIXELS="100")
    assert ended.code == 1, ended.log
    assert "all 3 processed pages failed, the first because: 120 x 160 pixels are more than the 100" in ended.last_line
    assert "no model has seen any" in ended.last_line
    assert "MAX_IMAGE_PIXELS" in ended.last_line


@pytest.mark.parametrize(
    ("room", "stage"),
    [
        ("nr_inodes=1", "config"),
        ("nr_inodes=3", "config"),
        ("size=8k", "setup"),
        ("nr_inodes=6", "resume"),
        ("size=20k", "stream"),
        ("size=64k", "stream"),
    ],
)
def test_a_disk_that_is_full_is_named_wherever_it_is_met_and_nothing_is_lost(volume: Make, room: str, stage: str):
    this = volume(8)
    with small_disk(this.workdir, room):
        ended = this.run()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert (ended.message["stage"], ended.message["permanent"]) == (stage, False)
    assert "the working directory has no room left: give WORKDIR_PATH more room" in ended.last_line
    assert "Traceback" not in ended.log
    kept = this.pages_stored("alto")
    again = this.run()
    assert again.code == 0, again.log
    assert f"resume: {len(kept)} done" in again.log
    assert set(this.outcomes().values()) <= {"ok", "skipped"}, again.log


def test_an_origin_that_is_down_ends_the_stream_and_fails_no_page(volume: Make):
    this = volume(14, faults={"images": status(503)})
    ended = this.run(DOWNLOAD_CONCURRENCY="4", INDEX_FAILURE_COUNT="3", BACKOFF_LIMIT_PER_INDEX="3")
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert "the image server is down" in ended.message["error"]
    assert f"{this.prefix}/manifest.json" not in this.listing()
    assert "failed:" not in ended.log


def test_an_origin_that_dies_under_way_ends_the_stream_and_what_was_fetched_is_done(volume: Make):
    this = volume(40)
    this.use(steps(seconds_per_image=0.05))
    run = this.start(DOWNLOAD_CONCURRENCY="3", LOOKAHEAD_PAGES="6")
    run.until(r"^page \d+ ok")
    this.origin.fault("images", reset())
    ended = run.end()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert "the image server is down" in ended.message["error"]
    assert not re.search(r"^page \d+ failed", ended.log, re.MULTILINE)
    done = this.pages_stored()
    assert done == this.pages_stored("alto")
    assert len(done) >= 6
    this.origin.mend()
    again = this.run()
    assert again.code == 0, again.log
    assert f"resume: {len(done)} done" in again.log


@pytest.mark.parametrize(("answer", "code"), [(404, 13), (403, 13), (503, 1), (418, 1)])
def test_a_manifest_that_is_not_served_is_permanent_or_transient_by_its_status(volume: Make, answer: int, code: int):
    this = volume(2, faults={"manifest": status(answer)})
    ended = this.run(DOWNLOAD_DEADLINE_SECONDS="5")
    assert ended.code == code, ended.log
    assert ended.message is not None
    assert ended.message["stage"] == "setup"
    assert str(answer) in ended.message["error"]


def test_a_manifest_that_never_comes_ends_at_the_download_deadline(volume: Make):
    this = volume(2, faults={"manifest": silent()})
    ended = this.run(DOWNLOAD_DEADLINE_SECONDS="2")
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert ended.message["stage"] == "setup"


def test_one_slow_page_holds_back_none_of_the_others(volume: Make):
    this = volume(6, faults={1: delay(3.0)})
    ended = this.run()
    assert ended.code == 0, ended.log
    order = [line.split()[1] for line in ended.log.splitlines() if line.startswith("page ")]
    assert order[-1] == "0001"
    assert list(this.outcomes()) == sorted(this.outcomes())


def test_a_pipeline_that_cannot_be_is_refused_before_any_page_is_handed_over(volume: Make):
    this = volume(2)
    this.pipeline.write_text("steps:\n- step: Segmentation\n  settings: {model: NoSuchModel}\n")
    ended = this.run()
    assert ended.code == 13, ended.log
    assert ended.message is not None
    assert ended.message["stage"] == "load"
    assert "NoSuchModel" in ended.message["error"] or "nosuchmodel" in ended.message["error"]


def test_a_step_that_does_not_exist_is_said_in_one_sentence(volume: Make):
    this = volume(1)
    this.pipeline.write_text("steps:\n- step: NoSuchStep\n")
    ended = this.run()
    assert ended.code == 13, ended.log
    assert "step 1: there is no step NoSuchStep; this htrflow has " in ended.last_line
    assert "Traceback" not in ended.log


def test_every_bad_setting_is_named_at_once(volume: Make):
    this = volume(2)
    ended = this.run(GPU_PAGES="none", S3_BUCKET="", RESULTS_URL="ftp://x")
    assert ended.code == 13
    assert ended.message is not None
    assert ended.message["stage"] == "config"
    assert all(name in ended.message["error"] for name in ("GPU_PAGES", "S3_BUCKET", "RESULTS_URL"))


def test_a_machine_that_stood_still_blames_nobody(volume: Make):
    """The supervisor wakes first and looks at processes that have not moved for longer than they may."""
    this = volume(6)
    this.use(steps(seconds_per_image=0.3))
    run = this.start(PAGE_TIMEOUT_SECONDS="4")
    run.until(r"^page \d+ ok")
    everyone = [psutil.Process(run.process.pid), *psutil.Process(run.process.pid).children(recursive=True)]
    for process in everyone:
        process.send_signal(signal.SIGSTOP)
    time.sleep(8)
    everyone[0].send_signal(signal.SIGCONT)
    run.until("the machine stood still")
    time.sleep(1.5)
    for process in everyone[1:]:
        process.send_signal(signal.SIGCONT)
    ended = run.end()
    assert ended.code == 0, ended.log
    assert set(this.outcomes().values()) == {"ok"}
    assert this.manifest["gpu_restarts"] == []


def test_a_volume_of_an_image_list_is_built_stored_and_done(volume: Make):
    this = volume(3)
    images = " ".join(f"{url}?token=s3cret" for url in this.origin.image_urls)
    ended = this.run(IIIF_MANIFEST_URL="", IMAGES=images)
    assert ended.code == 0, ended.log
    assert f"campaign/sources/test-recipe/{this.ref}/manifest.json" in this.listing()
    everything = b"".join(this.get(key) for key in this.listing())
    assert b"s3cret" not in everything
    assert "s3cret" not in ended.log
