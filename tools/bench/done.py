"""A volume that is done already: resume, verify, publish."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from actors.gpu.pipeline_file import recipe_digest
from actors.redact import source_digest
from tests.doubles.s3 import Stored
from tools.bench.figures import Figure
from tools.bench.scene import Scene, models

STORE_S = 0.03


def done_already(scene: Scene) -> list[Figure]:
    """First nothing but the stored pages is known, then the previous run's manifest.json. With it one page is left off, so
    that there is something to publish."""
    pages = scene.scaled(10_000, 1000)
    origin, store = scene.origin(pages, delay_s=0), scene.double_store()
    volume = scene.volume(origin, store.url)
    volume.use(models(page_s=0.0))
    assert scene.start(volume, MAX_PAGES="1").end(60).code == 0
    key = f"{volume.prefix}/manifest.json"
    first = json.loads(store.objects.pop(key).body)["page_sources"]["0001"]
    recipe, names = recipe_digest(volume.pipeline.read_text()), origin.folder.pages
    for page in names:
        url = first.replace(f"/{names[0].name}/", f"/{page.name}/")
        marks = {"source-digest": source_digest(url), "recipe-digest": recipe, "page-size": "2500x3500"}
        headers = {f"x-amz-meta-{name}": value for name, value in marks.items()}
        for kind in ("page", "alto"):
            path = f"{volume.prefix}/{kind}/{page.number:04d}.xml"
            store.objects[path] = Stored(b"<alto/>", headers if kind == "alto" else {}, datetime.now(UTC))
    store.faults.delay_s = STORE_S
    asked_s, asking = _whole_s(scene, volume, store, MAX_PAGES="0")
    size_mb = len(store.objects[key].body) / 1e6
    known_s, knowing = _whole_s(scene, volume, store, MAX_PAGES=str(pages - 1))
    return [
        Figure("resume, verify, publish by the previous manifest.json", known_s, "s", 20.0, notes=knowing),
        Figure("the same, asking for every ALTO's metadata", asked_s, "s", 60.0, notes=asking),
        Figure("manifest.json", size_mb, "MB", 5.0),
    ]


def _whole_s(scene: Scene, volume: object, store: object, **more: str) -> tuple[float, str]:
    """From the start of the stage resume to the last line of the run."""
    running = scene.start(volume, **more)  # type: ignore[arg-type]
    ended = running.end(300)
    assert ended.code == 0, ended.log
    assert "(0 processed)" in ended.log, ended.log
    begun, ended_at = running.first("stage resume"), running.first("COMPLETE")
    stages = {name: running.first(f"stage {name}") for name in ("resume", "verify", "publish")}
    at = [*stages.values(), ended_at]
    parts = [f"{name} {at[n + 1] - at[n]:.1f} s" for n, name in enumerate(stages)]
    return ended_at - begun, ", ".join(parts)
