"""What a page costs besides the models: CPU, memory, decodes."""

from __future__ import annotations

import os
import resource
import time

from actors.fetcher.images import decode_into
from tools.bench.figures import Figure
from tools.bench.sampling import SUPERVISOR, Sampler
from tools.bench.scene import SIZE, Scene, large_pages, models, null_models


def decode_cpu_s(scene: Scene) -> float:
    """CPU seconds of one decode by the fetcher's own decoder into memory that is there, the mean of some."""
    bodies = [file.read_bytes() for file in sorted(large_pages(scene.cache).iterdir())]
    block = memoryview(bytearray(SIZE[0] * SIZE[1] * 3))
    began = time.process_time()
    for body in bodies:
        decode_into(body, block)
    return (time.process_time() - began) / len(bodies)


def thousand(scene: Scene) -> list[Figure]:
    """Many pages through models that do nothing."""
    pages, since = scene.scaled(1000, 150), scene.scaled(200, 50)
    volume = scene.volume(scene.origin(pages, delay_s=0), scene.double_store().url, scene.null_htrflow())
    volume.use(null_models())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = scene.start(volume)
    with Sampler(running) as sampler:
        ended = running.end(600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.code == 0, ended.log
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    decode_s, last = decode_cpu_s(scene), sampler.last()
    growth = sampler.growth(since)
    early = sampler.at(since)
    spent = {n: (last.cpu_s[n] - early.cpu_s.get(n, 0)) / max(1, last.done - early.done) for n in last.cpu_s}
    parts = ", ".join(f"{name} {1000 * s:.1f} ms" for name, s in spent.items())
    rest_ms = 1000 * (cpu_s / pages - decode_s)
    whole = f"{1000 * cpu_s / pages:.1f} ms with a decode of {1000 * decode_s:.1f} ms; once streaming: {parts}"
    grown = ", ".join(f"{name} {100 * share:+.1f} %" for name, share in growth.items())
    sizes = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in last.anonymous.items())
    supervisor_mb = max(s.resident.get(SUPERVISOR, 0) for s in sampler.samples) / 1e6
    return [
        Figure("CPU a page besides one decode", rest_ms, "ms", 25.0, notes=f"{whole}; {ended.seconds:.1f} s in all"),
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


def decodes(scene: Scene) -> list[Figure]:
    """A pipeline of three models; every process counts what it decodes."""
    pages, (folder, counted) = 12, scene.counting()
    volume = scene.volume(scene.origin(pages), scene.double_store().url)
    volume.use(models(page_s=0.0))
    path = volume.environment()["PYTHONPATH"]
    ended = scene.start(volume, PYTHONPATH=os.pathsep.join([str(folder), path])).end(120)
    assert ended.code == 0, ended.log
    return [Figure("decodes a page", counted.stat().st_size / pages, "", 1.0, 1.0)]
