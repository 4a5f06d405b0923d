"""The GPU never waits: idle time from the models' own trace, with a good origin, a slow store, a late page, two GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.volume import Volume
from tools import localstack
from tools.bench import trace
from tools.bench.figures import Figure
from tools.bench.scene import BUCKET, PAGE_S, Scene, models
from tools.origin import delay

IDLE_LIMIT_S = 0.4
LATE_S = 20.0


def manifest(volume: Volume, endpoint: str) -> dict[str, Any]:
    """The run's own account of itself."""
    client = localstack.client(endpoint)
    try:
        body = client.get_object(Bucket=BUCKET, Key=f"{volume.prefix}/manifest.json")["Body"].read()
    finally:
        client.close()
    document: dict[str, Any] = json.loads(body)
    return document


def streamed(scene: Scene, volume: Volume, path: Path, **more: str) -> list[trace.Batch]:
    ended = scene.start(volume, **more).end(600)
    if ended.code:
        raise AssertionError(f"the run ended with {ended.code}; its log:\n{ended.log[-4000:]}")
    return trace.read(path)


def by_cause(batches: list[trace.Batch], said: dict[str, Any]) -> str:
    """Idle time, cause by cause."""
    idle_s = trace.length_s(trace.idle(batches))
    restart_s = sum(r["seconds"] for r in said["gpu_restarts"])
    no_page_s, store_s = said["gpu_stall_seconds"], said["store_stall_seconds"]
    between_s = max(0.0, idle_s - no_page_s - store_s - restart_s)
    longest = max((end - start for start, end in trace.idle(batches)), default=0.0)
    return (
        f"no page ready {no_page_s:.2f} s, store {store_s:.2f} s, restart {restart_s:.2f} s, "
        f"between pages (export, batch queue) {between_s:.2f} s; longest gap {longest:.3f} s"
    )


def _idle(scene: Scene, endpoint: str) -> list[Figure]:
    pages, path = scene.scaled(100, 20), scene.tmp / "trace"
    volume = scene.volume(scene.origin(pages), endpoint)
    volume.use(models(path))
    batches = streamed(scene, volume, path)
    limit = IDLE_LIMIT_S * pages / 100
    idle_s = trace.length_s(trace.idle(batches))
    return [Figure("GPU idle after the first page", idle_s, "s", limit, notes=by_cause(batches, manifest(volume, endpoint)))]


def idle(scene: Scene) -> list[Figure]:
    return _idle(scene, scene.localstack())


def slow_store(scene: Scene) -> list[Figure]:
    return _idle(scene, scene.double_store(0.03).url)


def late_page(scene: Scene) -> list[Figure]:
    pages, path, late_s = scene.scaled(100, 20), scene.tmp / "trace", LATE_S * scene.scaled(5, 1) / 5
    origin, store = scene.origin(pages, {10: delay(late_s)}), scene.double_store()
    volume = scene.volume(origin, store.url)
    volume.use(models(path))
    running = scene.start(volume)
    ended = running.end(600)
    assert ended.code == 0, ended.log
    asked_at = min(r.at for r in origin.requests if r.page)
    wall_s = running.first(r"COMPLETE") - asked_at
    ideal = max(pages * PAGE_S, late_s + PAGE_S)
    batches = trace.read(path)
    return [
        Figure("wall, from the first download on", wall_s, "s", ideal + 2, ideal, notes=by_cause(batches, manifest(volume, store.url)))
    ]


def stalls(scene: Scene) -> list[Figure]:
    """An origin too slow for the GPU: the reported stall against the trace's."""
    pages, path = scene.scaled(20, 8), scene.tmp / "trace"
    store = scene.double_store()
    volume = scene.volume(scene.origin(pages, delay_s=1.5), store.url, DOWNLOAD_CONCURRENCY="2")
    volume.use(models(path))
    batches = streamed(scene, volume, path)
    traced_s = trace.length_s(trace.without_a_page(batches))
    said_s = manifest(volume, store.url)["gpu_stall_seconds"]
    off = abs(said_s - traced_s)
    note = f"reported {said_s:.2f} s, in the trace {traced_s:.2f} s"
    return [Figure("gpu_stall_seconds off by", off, "s", max(0.1, 0.05 * traced_s), notes=note)]


def two_gpus(scene: Scene) -> list[Figure]:
    rates = []
    for workers in (1, 2):
        path, pages = scene.tmp / f"trace{workers}", scene.scaled(100, 30)
        volume = scene.volume(scene.origin(pages), scene.double_store().url, GPU_WORKERS=str(workers))
        volume.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
        volume.use(models(path))
        ends = sorted(end for _, end in trace.pages(streamed(scene, volume, path)).values())
        rates.append((len(ends) - 10) / (ends[-1] - ends[9]))
    note = f"{rates[0]:.2f} and {rates[1]:.2f} pages a second"
    return [Figure("pages a second of two against one", rates[1] / rates[0], "x", 1.95, 2.0, at_least=True, notes=note)]
