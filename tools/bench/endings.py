"""Pages that hang, and runs that are told to stop."""

from __future__ import annotations

import signal
import time

from tools.bench import trace
from tools.bench.figures import Figure
from tools.bench.scene import Scene, models

HANGS = ("0002", "0003", "0005", "0008")


def hang(scene: Scene) -> list[Figure]:
    """A page hangs while a standby has its imports done; the models take 0.5 s to load."""
    path, store = scene.tmp / "trace", scene.double_store()
    (scene.tmp / "state").mkdir()
    volume = scene.volume(scene.origin(16), store.url, scene.heavy_htrflow(), GPU_STANDBY="true")
    volume.use(models(path, load_s=0.5, faults={"0006": "hang"}))
    running = scene.start(volume, PAGE_TIMEOUT_SECONDS="25")
    ended = running.end(300)
    assert ended.code == 0, ended.log
    decided_at = running.first(r"is asked for its stacks")
    batches = trace.read(path)
    next_at = min(b.start for b in batches if b.start > decided_at and b.pid != batches[0].pid)
    seen = {
        "standby promoted": running.first(r"takes over") - decided_at,
        "loaded again": [at for at, line in running.stamps if " loaded " in line][-1] - decided_at,
    }
    notes = ", ".join(f"{what} after {after_s:.2f} s" for what, after_s in seen.items())
    return [Figure("from the decision to the next page's first batch", next_at - decided_at, "s", 1.5, 0.5, notes=notes)]


def four_hangs(scene: Scene) -> list[Figure]:
    volume = scene.volume(scene.origin(12), scene.double_store().url, GPU_STANDBY="true", PAGE_TIMEOUT_SECONDS="4")
    volume.use(models(faults=dict.fromkeys(HANGS, "hang")))
    ended = scene.start(volume).end(300)
    return [Figure("exit code", ended.code, "", 0, notes=f"{ended.seconds:.1f} s in all")]


def sigterm(scene: Scene) -> list[Figure]:
    return [Figure("from SIGTERM to exit", _stopped_s(scene, dead=False), "s", 1.0)]


def sigterm_dead_store(scene: Scene) -> list[Figure]:
    return [Figure("from SIGTERM to exit", _stopped_s(scene, dead=True), "s", 90.0)]


def _stopped_s(scene: Scene, *, dead: bool) -> float:
    store = scene.double_store()
    volume = scene.volume(scene.origin(60), store.url)
    volume.use(models())
    running = scene.start(volume)
    running.until(r"^page 0005 ok")
    if dead:
        done = running.log.count(" ok: ")
        store.faults.black_hole = True
        time.sleep(1.0)  # Pages pile up behind the dead store.
        assert running.log.count(" ok: ") <= done + 5
    at = time.monotonic()
    running.kill(signal.SIGTERM)
    running.process.wait(150)
    return time.monotonic() - at
