"""Chaos: any actor is killed or stopped at random moments over a whole volume.

Within the rules (never twice with the same page in hand, a stop is ended before any deadline, under the restart limits)
nothing of it shows in the outcome. Without rules the outcome is what the table of liveness and blame says
(tests/blame_model.py). `make chaos` runs more seeds.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests import blame_model
from tests.chaos import within_the_rules, without_rules
from tests.volume import Ended, Volume, steps, wait_for

Make = Callable[..., Volume]
LONG = os.environ.get("BATCHPOD_CHAOS") == "long"
PAGES, DISTURBANCES = 60, 8
SEEDS = range(25) if LONG else range(1)
LEAST_STRUCK = 200
HURRY = ("batchpod.services.BEAT_S=4", "supervisor.loop.INBOX_STUCK_S=10")
LIMITS = {"PAGE_TIMEOUT_SECONDS": "3", "GPU_LOAD_SECONDS": "8", "GPU_START_SECONDS": "20"}
_TIMES = re.compile(rb"\d{4}-\d\d-\d\dT[0-9:.]+(\+00:00|Z)?")
struck: list[str] = []
calm: dict[str, bytes] = {}


def stored(this: Volume) -> dict[str, bytes]:
    """Every page's two files, without the times in them."""
    found = {}
    for kind in ("page", "alto"):
        for name in this.pages_stored(kind):
            found[f"{kind}/{name}"] = _TIMES.sub(b"TIME", this.get(f"{this.prefix}/{kind}/{name}.xml"))
    return found


def undisturbed(make: Make) -> dict[str, bytes]:
    """What a run without disturbances stores; run once in this process."""
    if not calm:
        this = make(PAGES)
        this.use(steps(seconds_per_image=0.03))
        assert this.run().code == 0
        calm.update(stored(this))
        assert len(calm) == 2 * PAGES
    return calm


@pytest.mark.parametrize("seed", SEEDS)
def test_chaos_within_the_rules_changes_nothing_of_the_outcome(volume: Make, seed: int):
    expected = undisturbed(volume)
    wild = volume(PAGES)
    wild.use(steps(seconds_per_image=0.03))
    run = wild.start(GPU_STANDBY="true")
    run.until(r"^page \d+ ok")
    done = within_the_rules(run, seed, PAGES, DISTURBANCES)
    struck.extend(done)
    ended = run.end()
    assert ended.code == 0, ended.log
    assert len(done) >= DISTURBANCES // 2, done
    assert set(wild.outcomes().values()) == {"ok"}, ended.log
    assert stored(wild) == expected
    wait_for(lambda: wild.left_in_workdir() == set(), "empty workdir", 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_chaos_without_rules_costs_what_the_table_says(volume: Make, seed: int):
    expected = undisturbed(volume)
    wild, chance = volume(PAGES), random.Random(-1 - seed)
    trace = wild.tmp / f"trace-{seed}"
    wild.use(steps(seconds_per_image=0.03, trace=str(trace)))
    workers, pages = chance.choice(["1", "1", "2"]), chance.choice(["1", "2", "3"])
    standby = chance.choice(["true", "true", "false"])
    run = wild.start(
        *HURRY, **LIMITS, GPU_WORKERS=workers, GPU_PAGES=pages, GPU_STANDBY=standby, CUDA_VISIBLE_DEVICES="0,1"
    )
    run.until(r"fetcher#1 started")
    done = without_rules(run, seed, PAGES)
    struck.extend(done)
    ended = run.end()
    table = blame_model.expected(ended.log, int(workers))
    assert table.wrong == [], (done, ended.log)
    compare(wild, ended, table, expected)
    assert_no_work_twice(wild, ended, table, trace)
    wait_for(lambda: wild.left_in_workdir() == set(), "empty workdir", 5)
    if ended.code == 1:
        wild.use(steps(seconds_per_image=0.03, trace=str(trace)))
        again = wild.run()
        assert again.code == 0, again.log
        assert stored(wild) == expected, again.log


def compare(this: Volume, ended: Ended, table: blame_model.Expected, expected: dict[str, bytes]) -> None:
    """The outcome is the table's, and every stored file is the undisturbed one."""
    kept = stored(this)
    assert all(body == expected[name] for name, body in kept.items()), ended.log
    if table.ended_by is not None:
        assert ended.code == 1, ended.log
        assert ended.message is not None
        assert table.ended_by in ended.message["error"], ended.log
        return
    assert ended.code == 0, ended.log
    failed = {name: r["error"] for name, r in this.manifest["results"].items() if r["status"] == "failed"}
    assert failed == table.failed, ended.log
    names = {name.partition("/")[2] for name in expected} - set(failed)
    assert set(kept) == {f"{kind}/{name}" for kind in ("page", "alto") for name in names}, ended.log
    assert len(this.manifest["gpu_restarts"]) == table.restarts, ended.log


def assert_no_work_twice(this: Volume, ended: Ended, table: blame_model.Expected, trace: Any) -> None:
    """A page is read by one process, and by one more for each time it was taken back; fetched once, and once more for
    each time it was lost."""
    calls = [orjson.loads(line) for line in trace.read_bytes().splitlines()] if trace.exists() else []
    readers = Counter(page for page, _ in {(c["page"], c["pid"]) for c in calls if c["page"] != "smoke"})
    over = {page: n for page, n in readers.items() if n > 1 + table.requeued[page]}
    assert not over, (over, ended.log)
    lost = sum(int(n) for n in re.findall(r"(\d+) pages are asked for again", ended.log))
    asked = sum(this.origin.asked(n) for n in range(1, PAGES + 1))
    assert asked <= PAGES + lost, ended.log


@pytest.mark.skipif(not LONG, reason="counts what `make chaos` has done")
def test_chaos_has_struck_often_enough(capsys: pytest.CaptureFixture[str]):
    with capsys.disabled():
        print(f"\nchaos struck {len(struck)} times: {dict(sorted(Counter(struck).items()))}")
    assert len(struck) >= LEAST_STRUCK
