"""Real htrflow with the demo's models on the CPU: a whole volume by batchpod, and by htrflow's own command."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from tests.gpu_process import document_htrflow
from tools.bench.figures import Figure
from tools.bench.scene import ROOT, Scene
from tools.origin import running_origin

MODELS = ROOT / "tools" / "demo_models"
DEMO = ROOT / "tools" / "demo"
WORKERS = (1, 2)
"""Gpu actors on the CPU: one, as by default, and one for each core of the machine that the bench is made for."""
STARTS, STARTED_PAGES = 3, 2
"""How often each of the two is started for the time to its first page, in turn, and with how many pages."""
_CLI = "import sys; from htrflow.cli import app; app(sys.argv[1:])"


def collection(scene: Scene) -> list[Figure]:
    """The installed htrflow."""
    return _compared(scene, None, [[]])


def document(scene: Scene) -> list[Figure] | str:
    """The checkout of main that HTRFLOW_SRC names; its command with one to three workers."""
    if not os.environ.get("HTRFLOW_SRC"):
        return "HTRFLOW_SRC does not name a checkout of htrflow main"
    return _compared(scene, document_htrflow(scene.tmp / "main"), [["--workers", str(n)] for n in (1, 2, 3)])


def _compared(scene: Scene, htrflow: Path | None, variants: list[list[str]]) -> list[Figure]:
    pages = scene.scaled(60, 6)
    files = [f for f in sorted((DEMO / "volume").iterdir()) if f.suffix == ".jpg"]
    images = _folder(scene.tmp / "images", files, pages)
    origin = scene.stack.enter_context(running_origin(images))
    recipe = yaml.safe_load((DEMO / "pipeline.yaml").read_text())["steps"]
    surroundings = {"HF_HOME": str(MODELS), "HF_HUB_OFFLINE": "1", "YOLO_CONFIG_DIR": str(scene.tmp), "OMP_NUM_THREADS": ""}

    def by_us(**more: str) -> tuple[float, float]:
        volume = scene.volume(origin, scene.double_store().url, htrflow, **surroundings, **more)
        volume.environ["GPU_STANDBY"] = "true"
        volume.use(recipe)
        return _ours(scene, volume)

    def by_them(folder: Path, more: list[str]) -> tuple[float, float]:
        environ = scene.volume(None, "", htrflow, **surroundings).environment()
        del environ["OMP_NUM_THREADS"]
        return _theirs(scene, recipe, folder, environ, more)

    ours = {workers: by_us(GPU_WORKERS=str(workers)) for workers in WORKERS}
    theirs = {" ".join(more): by_them(images, more) for more in variants}
    option, (theirs_s, _) = min(theirs.items(), key=lambda item: item[1][0])
    workers, (ours_s, _) = min(ours.items(), key=lambda item: item[1][0])
    each = [f"{pages / s:.2f} with GPU_WORKERS={n}" for n, (s, _) in ours.items()]
    each += [f"{pages / s:.2f} by its command {more}".rstrip() for more, (s, _) in theirs.items()]
    few = _folder(scene.tmp / "few", files, STARTED_PAGES)
    starts = [(by_us(MAX_PAGES=str(STARTED_PAGES))[1], by_them(few, variants[0])[1]) for _ in range(scene.scaled(STARTS, 1))]
    our_first_s, their_first_s = (statistics.median(column) for column in zip(*starts, strict=True))
    return [
        Figure(
            f"pages a second against htrflow's own command, GPU_WORKERS={workers} {option}".rstrip(),
            theirs_s / ours_s,
            "x",
            1.15,
            at_least=True,
            notes=f"{pages} pages, start to exit: {'; '.join(each)}",
        ),
        Figure(
            "start to first page against htrflow's own command",
            our_first_s / their_first_s,
            "x",
            1.0,
            notes="started in turn, seconds: " + "; ".join(f"{ours_s:.1f} and {theirs_s:.1f}" for ours_s, theirs_s in starts),
        ),
    ]


def _folder(folder: Path, files: list[Path], pages: int) -> Path:
    """A folder of so many pages, the demo's over and over."""
    folder.mkdir()
    for number in range(pages):
        shutil.copy(files[number % len(files)], folder / f"{number + 1:04d}.jpg")
    return folder


def _ours(scene: Scene, volume: Any) -> tuple[float, float]:
    """Seconds of the whole, and to the first page that is stored."""
    began = time.monotonic()
    running = scene.start(volume)
    ended = running.end(600)
    assert ended.code == 0, ended.log[-4000:]
    return ended.seconds, running.first(r"^page \d+ ok") - began


def _theirs(scene: Scene, recipe: list[Any], images: Path, environ: dict[str, str], more: list[str]) -> tuple[float, float]:
    """Seconds of the whole, and to the first exported file."""
    folder = Path(tempfile.mkdtemp(dir=scene.tmp))
    exports = [{"step": "Export", "settings": {"dest": str(folder / f), "format": f}} for f in ("page", "alto")]
    pipeline = folder / "pipeline.yaml"
    pipeline.write_text(yaml.safe_dump({"steps": [*recipe, *exports]}, sort_keys=False))
    began, first_s = time.monotonic(), 0.0
    command = [sys.executable, "-c", _CLI, "pipeline", str(pipeline), str(images), "--logfile", str(folder / "log"), *more]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, env=environ, cwd=folder, stdout=output, stderr=output)
        while process.poll() is None:
            if not first_s and any((folder / "alto").rglob("*.xml")):
                first_s = time.monotonic() - began
            time.sleep(0.02)
    seconds = time.monotonic() - began
    made = len(list((folder / "alto").rglob("*.xml")))
    expected = len(list(images.iterdir()))
    assert process.returncode == 0, (folder / "output").read_text()[-3000:]
    assert made == expected, f"htrflow's command exported {made} of {expected} pages"
    return seconds, first_s
