"""Each row of the table of liveness and blame, with real processes: what is seen, what is done, who pays."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Callable

import psutil
import pytest

from tests.freezing import frozen
from tests.volume import Running, Volume, steps, wait_for

Make = Callable[..., Volume]
TIMEOUT_S = "4"
ENDS_S = 10.0
"""For what is no page's: the imports, the first load, the last documents."""


def failed_of(this: Volume) -> dict[str, str]:
    return {name: r["error"] for name, r in this.manifest["results"].items() if r["status"] == "failed"}


def ok_of(this: Volume) -> set[str]:
    return {name for name, status in this.outcomes().items() if status == "ok"}


def names(*numbers: int) -> set[str]:
    return {f"{n:04d}" for n in numbers}


@pytest.mark.parametrize("fault", ["hang", "hang_gil"])
def test_a_page_that_hangs_alone_fails_with_its_step_its_model_and_where_it_stood(volume: Make, fault: str):
    this = volume(4)
    this.use(steps({"0002": fault}))
    ended = this.run(PAGE_TIMEOUT_SECONDS=TIMEOUT_S, GPU_PAGES="1")
    assert ended.code == 0, ended.log
    assert set(failed_of(this)) == names(2)
    reason = failed_of(this)["0002"]
    assert re.match(
        r"made no progress for 4 s in TextRecognition \(reader \d/\d\); it stood in \S*scripted\.py:\d+ in _hang",
        reason,
    )
    assert "most recent call first" in ended.log
    restarts = this.manifest["gpu_restarts"]
    assert [r["page"] for r in restarts] == ["0002"]
    assert ok_of(this) == names(1, 3, 4)


def test_a_hang_in_company_that_waits_costs_only_the_page_inside(volume: Make):
    this = volume(6)
    this.use(steps({"0003": "hang"}))
    ended = this.run(PAGE_TIMEOUT_SECONDS=TIMEOUT_S, GPU_PAGES="3")
    assert ended.code == 0, ended.log
    assert set(failed_of(this)) == names(3)
    assert len(this.manifest["gpu_restarts"]) == 1
    assert ok_of(this) == names(1, 2, 4, 5, 6)


def test_a_held_gil_that_stops_pages_in_company_is_found_out_alone(volume: Make):
    this = volume(6)
    this.use(steps({"0003": "hang_gil"}, seconds_per_image=0.05))
    ended = this.run(PAGE_TIMEOUT_SECONDS=TIMEOUT_S, GPU_PAGES="3")
    assert ended.code == 0, ended.log
    assert set(failed_of(this)) == names(3)
    assert ok_of(this) == names(1, 2, 4, 5, 6)
    assert len(this.manifest["gpu_restarts"]) <= 2


def test_four_pages_that_hang_for_ever_cost_themselves_only_and_twice_their_timeout_at_most(volume: Make):
    this = volume(8)
    this.use(steps(dict.fromkeys(["0002", "0003", "0005", "0008"], "hang")))
    ended = this.run(PAGE_TIMEOUT_SECONDS="3", GPU_STANDBY="true")
    assert ended.code == 0, ended.log
    assert set(failed_of(this)) == names(2, 3, 5, 8)
    assert ok_of(this) == names(1, 4, 6, 7)
    loads_s = sum(r["seconds"] for r in this.manifest["gpu_restarts"])
    assert this.manifest["wall_seconds"] - ENDS_S < 4 * 2 * 3 + loads_s, ended.log


def test_a_page_that_hangs_in_a_subprocess_takes_it_along(volume: Make):
    this = volume(4)
    this.use(steps({"0002": "hang_child"}))
    run = this.start(PAGE_TIMEOUT_SECONDS="2", GPU_PAGES="1")
    sleeping = wait_for(lambda: subprocesses(run), "a subprocess of the model", running=run)
    ended = run.end()
    assert ended.code == 0, ended.log
    assert set(failed_of(this)) == names(2)
    assert ok_of(this) == names(1, 3, 4)
    assert "subprocess.py" in failed_of(this)["0002"]
    assert not psutil.wait_procs(sleeping, timeout=5)[1]


def subprocesses(run: Running) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess, IndexError):
        found = psutil.Process(run.children("gpu-0")[-1]).children()
        return [process for process in found if process.name() == "sleep"]
    return []


def test_a_process_that_sigkill_does_not_end_ends_the_run_which_names_it_and_its_state(volume: Make):
    this = volume(4)
    this.use(steps({"0002": "hang"}))
    run = this.start("supervisor.lifecycle.WITHIN_S.killing=2", PAGE_TIMEOUT_SECONDS="8", GPU_PAGES="1")
    run.until(r"page 0002 shows no progress")
    pid = run.children("gpu-0")[-1]
    with frozen(pid):
        ended = run.end()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert ended.message["error"] == f"gpu-0 (pid {pid}, state D) is not ended by SIGKILL within 2 s"
    assert ended.message["stage"] == "stream"
    assert this.pages_stored() <= names(1, 3, 4)


def test_a_page_that_kills_its_process_is_tried_once_more_alone_and_then_named_with_the_signal(volume: Make):
    this = volume(4)
    this.use(steps({"0002": "segv"}))
    ended = this.run(GPU_PAGES="1")
    assert ended.code == 0, ended.log
    reason = "the gpu process was killed by signal 11 (SIGSEGV) twice while only this page was in it"
    assert failed_of(this)["0002"].startswith(f"{reason}, last in TextRecognition (reader")
    assert ok_of(this) == names(1, 3, 4)
    assert len(this.manifest["gpu_restarts"]) >= 1


def test_a_death_in_company_is_found_out_by_trying_each_alone(volume: Make):
    this = volume(6)
    this.use(steps({"0004": "exit:3"}))
    ended = this.run(GPU_PAGES="3")
    assert ended.code == 0, ended.log
    assert "ended with exit status 3 twice while only this page was in it" in failed_of(this)["0004"]
    assert set(failed_of(this)) == names(4)
    assert ok_of(this) == names(1, 2, 3, 5, 6)


def test_a_page_that_kills_its_process_once_comes_out(volume: Make):
    this = volume(4)
    (this.tmp / "state").mkdir()
    this.use(steps({"0002": "once:kill"}, state=str(this.tmp / "state")))
    ended = this.run()
    assert ended.code == 0, ended.log
    assert ok_of(this) == names(1, 2, 3, 4)
    assert len(this.manifest["gpu_restarts"]) == 1


def test_many_pages_in_a_row_that_crash_do_not_end_the_volume(volume: Make):
    this = volume(9)
    guilty = range(2, 8)
    this.use(steps({f"{n:04d}": "exit" for n in guilty}))
    ended = this.run(GPU_STANDBY="true")
    assert ended.code == 0, ended.log
    assert set(failed_of(this)) == names(*guilty)
    assert ok_of(this) == names(1, 8, 9)
    assert "the smoke test passed: the pages were guilty" in ended.log


def test_a_broken_device_fails_no_page_and_ends_the_run(volume: Make):
    this = volume(6)
    (this.tmp / "state").mkdir()
    this.use(steps({"*": "cuda", "smoke": ""}, state=str(this.tmp / "state")))
    run = this.start()
    run.until(r"^gpu-0 loaded")
    this.use(steps({"*": "cuda", "smoke": "cuda"}, state=str(this.tmp / "state")))
    ended = run.end()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert "illegal memory access" in ended.message["error"]
    assert f"{this.prefix}/manifest.json" not in this.listing()
    starts = len(re.findall(r"gpu-0#\d+ started", ended.log))
    assert starts <= 4, ended.log
    assert not re.search(r"^page \d+ failed", ended.last_line)


def test_out_of_memory_is_tried_image_by_image_before_anything_is_restarted(volume: Make):
    this = volume(3)
    this.use(steps({"0002": "oom_batch"}))
    ended = this.run()
    assert ended.code == 0, ended.log
    assert ok_of(this) == names(1, 2, 3)
    assert this.manifest["gpu_restarts"] == []


def test_a_page_for_which_memory_never_suffices_fails_after_a_fresh_process(volume: Make):
    this = volume(3)
    this.use(steps({"0002": "oom"}))
    ended = this.run()
    assert ended.code == 0, ended.log
    assert "out of memory" in failed_of(this)["0002"]
    assert len(this.manifest["gpu_restarts"]) == 1
    assert ok_of(this) == names(1, 3)


def test_three_starts_in_a_row_that_fail_end_the_run_with_the_last_cause(volume: Make):
    this = volume(3)
    (this.tmp / "state").mkdir()
    this.use(steps({"0002": "exit"}))
    run = this.start()
    run.until(r"^gpu-0 loaded")
    this.use(steps(load_error="RuntimeError: the driver is gone", state=str(this.tmp / "state")))
    ended = run.end()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert "3 starts in a row" in ended.message["error"]
    assert "the driver is gone" in ended.message["error"]


def test_a_load_that_hangs_is_ended_at_its_deadline_and_named(volume: Make):
    this = volume(2)
    this.use(steps(load_error="hang"))
    ended = this.run(GPU_LOAD_SECONDS="1")
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert "loading took longer than 1 s" in ended.message["error"]
    assert ended.message["stage"] == "load"


def test_a_stopped_gpu_process_is_killed_and_its_page_is_named(volume: Make):
    this = volume(20)
    this.use(steps(seconds_per_image=0.2))
    run = this.start(PAGE_TIMEOUT_SECONDS=TIMEOUT_S, GPU_PAGES="1")
    run.until_stored(1)
    psutil.Process(run.children("gpu-0")[-1]).send_signal(signal.SIGSTOP)
    ended = run.end()
    assert ended.code == 0, ended.log
    assert len(failed_of(this)) == 1, ended.log
    assert len(ok_of(this)) == 19


@pytest.mark.parametrize("actor", ["fetcher", "uploader"])
def test_a_service_that_dies_is_restarted_and_costs_no_page(volume: Make, actor: str):
    this = volume(12)
    this.use(steps(seconds_per_image=0.1))
    run = this.start()
    run.until(r"^page \d+ ok")
    psutil.Process(run.children(actor)[-1]).kill()
    ended = run.end()
    assert ended.code == 0, ended.log
    assert len(ok_of(this)) == 12
    assert this.pages_stored() == this.pages_stored("alto") == names(*range(1, 13))
    assert re.search(rf"{actor}#2 started", ended.log)


@pytest.mark.parametrize("actor", ["fetcher", "uploader"])
def test_a_service_whose_dispatch_loop_stands_still_is_ended_and_costs_no_page(volume: Make, actor: str):
    this = volume(12)
    this.use(steps(seconds_per_image=0.1))
    run = this.start("batchpod.services.BEAT_S=6", LOOKAHEAD_PAGES="3")
    run.until(r"^page \d+ ok")
    psutil.Process(run.children(actor)[-1]).send_signal(signal.SIGSTOP)
    ended = run.end()
    assert ended.code == 0, ended.log
    assert len(ok_of(this)) == 12
    assert re.search(rf"{actor}#\d its dispatch loop has not turned for \d s", ended.log), ended.log
    assert re.search(rf"{actor}#\d is killed in kernel state T: its dispatch loop has not turned", ended.log), ended.log
    assert re.search(rf"{actor}#2 started", ended.log)


def test_a_standby_that_keeps_dying_is_given_up_with_a_warning_and_counts_as_no_start(volume: Make):
    this = volume(30)
    this.use(steps(seconds_per_image=0.2))
    run = this.start("supervisor.restart.FIRST_WAIT_S=0.01", GPU_STANDBY="true")
    for number in range(1, 6):
        pid = int(run.until(rf"standby#{number} started, pid (\d+)")[1])
        psutil.Process(pid).kill()
    run.until(r"WARNING the standby keeps dying")
    ended = run.end()
    assert ended.code == 0, ended.log
    assert len(ok_of(this)) == 30
    assert "standby#6" not in ended.log
    assert this.manifest["gpu_restarts"] == []


def test_a_standby_is_started_once_a_page_is_out_takes_over_and_is_replaced(volume: Make):
    this = volume(20)
    (this.tmp / "state").mkdir()
    this.use(steps({"0008": "once:kill"}, state=str(this.tmp / "state"), seconds_per_image=0.15))
    ended = this.run(GPU_STANDBY="true")
    assert ended.code == 0, ended.log
    assert len(ok_of(this)) == 20
    order = re.findall(r"(standby#\d started|gpu-0#\d the standby|^gpu-0 loaded|^page \d+ ok)", ended.log, re.MULTILINE)
    kinds = [kind for kind in order if not kind.startswith("page")]
    assert kinds == ["gpu-0 loaded", "standby#1 started", "gpu-0#2 the standby", "gpu-0 loaded", "standby#2 started"]
    assert not re.search(r"gpu-0#2 started", ended.log)


def test_a_standby_that_is_dead_itself_takes_nothing_over(volume: Make):
    """Both die while the supervisor looks away; a promoted corpse would count as a failed start."""
    this = volume(12)
    this.use(steps(seconds_per_image=0.15))
    run = this.start(GPU_STANDBY="true")
    run.until(r"standby#1 started")
    run.until_stored(3)
    supervisor = psutil.Process(run.process.pid)
    supervisor.suspend()
    for name in ("gpu-0", "standby"):
        psutil.Process(run.children(name)[-1]).kill()
    supervisor.resume()
    ended = run.end()
    assert ended.code == 0, ended.log
    assert len(ok_of(this)) == 12
    assert "gpu-0#2 started" in ended.log, ended.log
    assert "takes over" not in ended.log


def test_without_a_standby_a_dead_gpu_process_is_started_anew(volume: Make):
    this = volume(6)
    (this.tmp / "state").mkdir()
    this.use(steps({"0002": "once:kill"}, state=str(this.tmp / "state")))
    ended = this.run(GPU_STANDBY="false")
    assert ended.code == 0, ended.log
    assert "standby" not in ended.log
    assert "gpu-0#2 started" in ended.log


def test_a_service_that_keeps_dying_ends_the_run(volume: Make):
    this = volume(40)
    this.use(steps(seconds_per_image=0.5))
    run = this.start()
    for number in range(1, 7):
        run.until(rf"fetcher#{number} started")
        psutil.Process(run.children("fetcher")[-1]).kill()
    ended = run.end()
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert "the fetcher died more than 5 times" in ended.message["error"]


def test_two_gpu_actors_share_the_work_each_with_its_own_device(volume: Make):
    this = volume(10)
    trace = this.tmp / "trace"
    this.use(steps(seconds_per_image=0.1, trace=str(trace)))
    ended = this.run(GPU_WORKERS="2", CUDA_VISIBLE_DEVICES="3,5")
    assert ended.code == 0, ended.log
    calls = [json.loads(line) for line in trace.read_text().splitlines()]
    devices = {c["device"] for c in calls if c["page"] != "smoke"}
    assert devices == {"3", "5"}
    assert len({c["pid"] for c in calls if c["page"] != "smoke"}) == 2
    assert len(ok_of(this)) == 10


def test_after_the_supervisor_is_killed_no_process_lives_and_the_next_run_clears_the_workdir(volume: Make):
    this = volume(30)
    this.use(steps(seconds_per_image=0.3))
    run = this.start(GPU_STANDBY="true")
    run.until(r"^page \d+ ok")
    children = [psutil.Process(p) for name in ("fetcher", "uploader", "gpu-0", "standby") for p in run.children(name)]
    assert len(children) >= 3
    run.kill(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive
    run.end()
    assert this.left_in_workdir()
    this.use(steps())
    ended = this.run(MAX_PAGES="3", RESUME="false")
    assert ended.code == 0, ended.log
    assert this.left_in_workdir() == set()


def test_a_second_run_in_a_live_workdir_is_refused(volume: Make):
    this = volume(10)
    this.use(steps(seconds_per_image=0.3))
    run = this.start()
    run.until(r"^page \d+ ok")
    other = this.tmp / "other.json"
    refused = this.run(TERMINATION_LOG_PATH=str(other))
    assert refused.code == 13
    assert "a live run is working in it" in refused.log
    run.kill(signal.SIGTERM)
    assert run.end().code == 143
