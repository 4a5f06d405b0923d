"""Several gpu actors: each its own device, incarnations and account; one broken device costs the run nothing but speed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import orjson

from tests.volume import Volume, steps

Make = Callable[..., Volume]
TWO = {"GPU_WORKERS": "2", "CUDA_VISIBLE_DEVICES": "3,5"}


def test_a_device_that_is_broken_from_the_start_is_retired_with_a_warning_and_the_other_does_the_work(volume: Make):
    this = volume(8)
    trace = this.tmp / "trace"
    this.use(steps({"device 5": "cuda"}, trace=str(trace), seconds_per_image=0.05))
    ended = this.run(**TWO)
    assert ended.code == 0, ended.log
    assert set(this.outcomes().values()) == {"ok"}
    assert re.search(r"gpu-1#1 WARNING is given up, the run goes on without it: .*illegal memory access", ended.log)
    calls = [orjson.loads(line) for line in trace.read_bytes().splitlines()]
    assert {c["device"] for c in calls if c["page"] != "smoke"} == {"3"}


def test_a_device_that_breaks_under_way_is_retired_and_its_pages_come_out_of_the_other(volume: Make):
    this = volume(30)
    (this.tmp / "state").mkdir()
    faults = {"device 5": "while:broken:cuda"}
    this.use(steps(faults, state=str(this.tmp / "state"), seconds_per_image=0.2))
    run = this.start(**TWO, GPU_PAGES="1", GPU_STANDBY="true")
    run.until(r"^gpu-1 loaded")
    (this.tmp / "state" / "broken").touch()
    ended = run.end()
    assert ended.code == 0, ended.log
    assert Counter(this.outcomes().values()) == {"ok": 30}, ended.log
    assert re.search(r"gpu-1#\d WARNING is given up, the run goes on without it", ended.log)
    assert not re.search(r"gpu-0#2 started", ended.log)
    assert {r["cause"] for r in this.manifest["gpu_restarts"]}, ended.log


def test_all_devices_broken_end_the_run_and_fail_no_page(volume: Make):
    this = volume(6)
    this.use(steps({"device 3": "cuda", "device 5": "cuda"}))
    ended = this.run(**TWO)
    assert ended.code == 1, ended.log
    assert ended.message is not None
    assert ended.message["stage"] == "load"
    assert "illegal memory access" in ended.message["error"]
    assert not re.search(r"^page \d+ failed", ended.log, re.MULTILINE)


def test_each_actor_counts_its_own_incarnations_and_a_page_is_blamed_wherever_it_runs(volume: Make):
    this = volume(16)
    this.use(steps({"0003": "exit", "0009": "exit"}, seconds_per_image=0.05))
    ended = this.run(**TWO, GPU_STANDBY="true")
    assert ended.code == 0, ended.log
    failed = {name for name, status in this.outcomes().items() if status == "failed"}
    assert failed == {"0003", "0009"}
    for name in ("gpu-0", "gpu-1"):
        numbers = [int(n) for n in re.findall(rf"{name}#(\d+) (?:started|the standby)", ended.log)]
        assert numbers == list(range(1, len(numbers) + 1)), ended.log
