"""What a page costs besides the models: CPU, memory, decodes."""

from __future__ import annotations

import itertools
import os
import resource
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from actors.fetcher.images import decode_into
from tools.bench.figures import Figure
from tools.bench.sampling import SUPERVISOR, Sampler
from tools.bench.scene import SIZE, Scene, large_pages, models, null_models

DECODE_EVERY_S = 1.0


class Decodes:
    """Decodes a page by the fetcher's own decoder once a second while the block lasts: on cores as busy as the run's, and
    at the speed that the machine has just then."""

    def __init__(self, scene: Scene) -> None:
        self._bodies = [file.read_bytes() for file in sorted(large_pages(scene.cache).iterdir())]
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._decode, name="decodes")
        self._spent_s: list[float] = []

    def __enter__(self) -> Decodes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def mean_s(self) -> float:
        """CPU seconds of one."""
        return sum(self._spent_s) / len(self._spent_s)

    def _decode(self) -> None:
        block = memoryview(bytearray(SIZE[0] * SIZE[1] * 3))
        decode_into(self._bodies[0], block)  # The first one also pays for the block's memory.
        for body in itertools.cycle(self._bodies):
            began_s = time.thread_time()
            decode_into(body, block)
            self._spent_s.append(time.thread_time() - began_s)
            if self._stop.wait(DECODE_EVERY_S):
                return


@dataclass(frozen=True, slots=True)
class Spent:
    """What one run took: CPU seconds of all its processes, of one decode meanwhile, and what was seen of each process."""

    cpu_s: float
    decode_s: float
    wall_s: float
    sampler: Sampler
    pages: int

    @property
    def rest_ms(self) -> float:
        """CPU milliseconds a page besides one decode."""
        return 1000 * (self.cpu_s / self.pages - self.decode_s)


def thousand(scene: Scene) -> list[Figure]:
    """Many pages through models that do nothing, three times. Whatever else runs on the machine only ever adds to the CPU
    time, so the smallest figure counts; of the memory's growth it is the largest."""
    pages, since = scene.scaled(1000, 150), scene.scaled(200, 50)
    htrflow = scene.null_htrflow()
    runs = [_null_run(scene, pages, htrflow) for _ in range(scene.scaled(3, 1))]
    least = min(runs, key=lambda run: run.rest_ms)
    last, early = least.sampler.last(), least.sampler.at(since)
    spent = {n: (last.cpu_s[n] - early.cpu_s.get(n, 0)) / max(1, last.done - early.done) for n in last.cpu_s}
    parts = ", ".join(f"{name} {1000 * s:.1f} ms" for name, s in spent.items())
    whole = f"{1000 * least.cpu_s / pages:.1f} ms with a decode of {1000 * least.decode_s:.1f} ms; once streaming: {parts}"
    growth = max((run.sampler.growth(since) for run in runs), key=lambda each: max(each.values()))
    grown = ", ".join(f"{name} {100 * share:+.1f} %" for name, share in growth.items())
    sizes = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in last.anonymous.items())
    supervisor_mb = max(s.resident.get(SUPERVISOR, 0) for run in runs for s in run.sampler.samples) / 1e6
    return [
        Figure(
            "CPU a page besides one decode",
            least.rest_ms,
            "ms",
            25.0,
            notes=f"{whole}; {least.wall_s:.1f} s in all; of {', '.join(f'{run.rest_ms:.1f}' for run in runs)}",
        ),
        Figure("supervising process: RSS", supervisor_mb, "MB", 60.0),
        Figure("supervising process: CPU a page", 1000 * spent[SUPERVISOR], "ms", 3.0),
        Figure(
            f"largest growth of anonymous RSS from page {since} on",
            100 * max(growth.values()),
            "%",
            5.0,
            notes=f"{grown}; at the end {sizes}",
        ),
    ]


def _null_run(scene: Scene, pages: int, htrflow: Path) -> Spent:
    volume = scene.volume(scene.origin(pages, delay_s=0), scene.double_store().url, htrflow)
    volume.use(null_models())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = scene.start(volume)
    with Sampler(running) as sampler, Decodes(scene) as decoding:
        ended = running.end(600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.code == 0, ended.log
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(cpu_s, decoding.mean_s, ended.seconds, sampler, pages)


def decodes(scene: Scene) -> list[Figure]:
    """A pipeline of three models; every process counts what it decodes."""
    pages, (folder, counted) = 12, scene.counting()
    volume = scene.volume(scene.origin(pages), scene.double_store().url)
    volume.use(models(page_s=0.0))
    path = volume.environment()["PYTHONPATH"]
    ended = scene.start(volume, PYTHONPATH=os.pathsep.join([str(folder), path])).end(120)
    assert ended.code == 0, ended.log
    return [Figure("decodes a page", counted.stat().st_size / pages, "", 1.0, 1.0)]
