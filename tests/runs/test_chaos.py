"""Chaos: any actor is killed or stopped at random moments over a whole volume, and nothing of it shows in the outcome.

Keeps to the rules under which the outcome must be exactly the undisturbed one: a gpu process is not ended twice with the
same page in hand, a stop is ended long before any deadline, restarts stay under their limits. `make chaos` runs more seeds.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable

import psutil
import pytest

from tests.volume import Running, Volume, steps, wait_for

Make = Callable[..., Volume]
PAGES = 60
DISTURBANCES = 8
SEEDS = range(25) if os.environ.get("BATCHPOD_CHAOS") == "long" else range(1)
SERVICE_KILLS = 4
OUT_BETWEEN_GPU_KILLS = 4
_TIMES = re.compile(rb"\d{4}-\d\d-\d\dT[0-9:.]+(\+00:00|Z)?")


def finished(run: Running) -> int:
    return len(re.findall(r"^page \d+ (?:ok|failed|deferred)", run.log, re.MULTILINE))


def disturb(run: Running, chance: random.Random) -> list[str]:
    """Kill or stop actors until the run is nearly done; what was done."""
    done: list[str] = []
    kills = {"fetcher": 0, "uploader": 0}
    gpu_killed_at = -OUT_BETWEEN_GPU_KILLS
    while len(done) < DISTURBANCES and finished(run) < PAGES - 8 and run.process.poll() is None:
        time.sleep(chance.uniform(0.05, 0.5))
        actor, deed = chance.choice(["fetcher", "uploader", "gpu-0"]), chance.choice(["kill", "kill", "stop"])
        if deed == "kill" and actor == "gpu-0":
            if finished(run) - gpu_killed_at < OUT_BETWEEN_GPU_KILLS:
                continue
            gpu_killed_at = finished(run)
        elif deed == "kill":
            if kills[actor] >= SERVICE_KILLS:
                continue
            kills[actor] += 1
        for pid in run.children(actor)[-1:]:
            process = psutil.Process(pid)
            process.send_signal(signal.SIGKILL if deed == "kill" else signal.SIGSTOP)
            if deed == "stop":
                time.sleep(chance.uniform(0.1, 0.6))
                process.send_signal(signal.SIGCONT)
            done.append(f"{deed} {actor}")
    return done


def stored(this: Volume) -> dict[str, bytes]:
    """Every page's two files, without the times in them."""
    found = {}
    for kind in ("page", "alto"):
        for name in this.pages_stored(kind):
            found[f"{kind}/{name}"] = _TIMES.sub(b"TIME", this.get(f"{this.prefix}/{kind}/{name}.xml"))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_chaos_within_the_rules_changes_nothing_of_the_outcome(volume: Make, seed: int):
    calm = volume(PAGES)
    calm.use(steps(seconds_per_image=0.03))
    assert calm.run().code == 0
    expected = stored(calm)
    assert len(expected) == 2 * PAGES
    wild = volume(PAGES)
    wild.use(steps(seconds_per_image=0.03))
    run = wild.start(GPU_STANDBY="true")
    run.until(r"^page \d+ ok")
    done = disturb(run, random.Random(seed))
    ended = run.end()
    assert ended.code == 0, ended.log
    assert len(done) >= DISTURBANCES // 2, done
    assert set(wild.outcomes().values()) == {"ok"}, ended.log
    assert stored(wild) == expected
    wait_for(lambda: wild.left_in_workdir() == set(), "empty workdir", 5)
