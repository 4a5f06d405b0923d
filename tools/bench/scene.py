"""Where a case runs: pages, models, origin, store, and the run between them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from tests.doubles import s3
from tests.gpu_process import DOUBLE, ROOT, document_htrflow
from tests.volume import Volume
from tools import localstack
from tools.bench.sampling import Stamped
from tools.origin import Fault, Origin, delay, running_origin

BUCKET = "bench"
SIZE = (2500, 3500)
DIFFERENT = 6
ORIGIN_S = 0.15
PAGE_S = 0.2

_NULL = '''"""Models that look at nothing and always find the same."""
from htrflow.document import Region, Text
from htrflow.models.base_model import BaseModel
from htrflow.utils.geometry import Bbox

class NullSegmenter(BaseModel):
    def __init__(self, lines=0, **settings):
        super().__init__(**settings)
        bands = [Bbox(0, 60 * n, 600, 60 * n + 40) for n in range(lines)]
        self._boxes = bands or [Bbox(50, 50, 650, 650)]

    def _predict(self, images):
        return [[Region(box.polygon()) for box in self._boxes] for _ in images]

class NullReader(BaseModel):
    def _predict(self, images):
        return [[Text("nothing was read", 1.0)] for _ in images]
'''
_HEAVY = "\nimport torch, torchvision, transformers, ultralytics, cv2\n"
_COUNTING = '''"""Counts the decodes of large images: one byte a decode in a file beside this one."""
import pathlib
import simplejpeg
from PIL import ImageFile

_load, _decode = ImageFile.ImageFile.load, simplejpeg.decode_jpeg

def count():
    with pathlib.Path(__file__).with_name("decodes").open("ab", buffering=0) as counted:
        counted.write(b"x")

def load(self):
    if self.tile and self.width >= 1000:
        count()
    return _load(self)

def decode(*given, **named):
    count()
    return _decode(*given, **named)

ImageFile.ImageFile.load, simplejpeg.decode_jpeg = load, decode
'''


@dataclass
class Scene:
    """`quick` scales a case down. What is opened on `stack` ends with the case."""

    tmp: Path
    cache: Path
    stack: ExitStack
    quick: bool
    shared: dict[str, Any]

    def scaled(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def origin(self, pages: int, faults: dict[int | str, Fault] | None = None, delay_s: float = ORIGIN_S) -> Origin:
        told: dict[int | str, Fault] = {"images": delay(delay_s)} if delay_s else {}
        origin: Origin = self.stack.enter_context(running_origin(large_pages(self.cache), told | (faults or {}), pages=pages))
        return origin

    def double_store(self, delay_s: float = 0.0) -> s3.Store:
        store = self.stack.enter_context(s3.running())
        store.faults.delay_s = delay_s
        return store

    def localstack(self) -> str:
        """One for the whole bench."""
        if "localstack" not in self.shared:
            store = self.shared["stack"].enter_context(localstack.running())
            client = localstack.client(store.url)
            client.create_bucket(Bucket=BUCKET)
            client.close()
            self.shared["localstack"] = store.url
        url: str = self.shared["localstack"]
        return url

    def volume(self, origin: Origin | None, endpoint: str, htrflow: Path | None = DOUBLE, **environ: str) -> Volume:
        tmp = Path(tempfile.mkdtemp(dir=self.tmp))
        credentials = tmp / "credentials"
        credentials.write_text(localstack.CREDENTIALS)
        given = {"PIXEL_ARENA_BYTES": "256Mi", "AWS_SHARED_CREDENTIALS_FILE": str(credentials), **environ}
        return Volume(tmp, None, BUCKET, endpoint, origin, htrflow=htrflow, environ=given)

    def start(self, volume: Volume, **more: str) -> Stamped:
        command = [sys.executable, "-m", "batchpod", "run"]
        running = Stamped(command, volume.environment(**more), volume.termination)
        self.stack.callback(running.close)
        return running

    def null_htrflow(self) -> Path:
        """The stand-in with models that do nothing."""
        folder = self.tmp / "null"
        shutil.copytree(DOUBLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        models = folder / "htrflow" / "models"
        (models / "null.py").write_text(_NULL)
        init = models / "__init__.py"
        added = "from htrflow.models.null import NullReader, NullSegmenter\nMODELS = (*MODELS, NullReader, NullSegmenter)\n"
        text = init.read_text().replace("\n\ndef available", f"\n{added}\n\ndef available", 1)
        init.write_text(text)
        return folder

    def heavy_htrflow(self) -> Path:
        """Scripted models with the real imports: htrflow main where HTRFLOW_SRC is set, else the stand-in, made to import
        what htrflow imports."""
        folder = self.tmp / "heavy"
        if os.environ.get("HTRFLOW_SRC"):
            return document_htrflow(folder)
        shutil.copytree(DOUBLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        with (folder / "htrflow" / "__init__.py").open("a") as init:
            init.write(_HEAVY)
        return folder

    def counting(self) -> tuple[Path, Path]:
        """A folder for the import path that makes every process count its decodes, and the file they are counted in."""
        folder = self.tmp / "counting"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_COUNTING)
        return folder, folder / "decodes"


@contextmanager
def scene(cache: Path, quick: bool, shared: dict[str, Any]) -> Iterator[Scene]:
    """A place that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as tmp, ExitStack() as stack:
        yield Scene(Path(tmp), cache, stack, quick, shared)


def large_pages(cache: Path) -> Path:
    """Pages of 2500 x 3500 in JPEGs of about 1 MB, made once."""
    folder = cache / "pages"
    if folder.exists():
        return folder
    making = Path(tempfile.mkdtemp(dir=cache))
    for seed in range(DIFFERENT):
        noise = np.random.default_rng(seed)
        coarse = noise.integers(90, 230, (SIZE[1] // 10, SIZE[0] // 10, 3), np.uint8)
        image = Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC)
        fine = Image.fromarray(noise.integers(0, 256, (SIZE[1], SIZE[0]), np.uint8)).filter(ImageFilter.GaussianBlur(1))
        Image.blend(image, fine.convert("RGB"), 0.3).save(making / f"{seed}.jpg", quality=50)
    making.rename(folder)
    return folder


def models(trace: Path | None = None, page_s: float = PAGE_S, *, load_s: float = 0.0, faults: Any = None) -> list[dict[str, Any]]:
    """Regions, lines, text. The GPU's whole time per page is the reader's one batch."""
    common = {"trace": str(trace)} if trace else {}
    reader = common | {"model": "bench/reader", "seconds_per_batch": page_s, "faults": faults or {}}
    return [
        _step("Segmentation", "ScriptedSegmenter", common | {"model": "bench/regions"}, 1),
        _step("Segmentation", "ScriptedSegmenter", common | {"model": "bench/lines", "rows": 4, "label": "line"}, 4),
        _step("TextRecognition", "ScriptedReader", reader | {"load_seconds": load_s}, 4),
    ]


def null_models() -> list[dict[str, Any]]:
    """One small region with ten lines, so that what is cut out and exported costs little."""
    return [
        _step("Segmentation", "NullSegmenter", {}, 1),
        _step("Segmentation", "NullSegmenter", {"lines": 10}, 1),
        _step("TextRecognition", "NullReader", {}, 10),
    ]


def _step(step: str, model: str, settings: dict[str, Any], batch: int) -> dict[str, Any]:
    given = {"model": model, "model_settings": settings, "generation_settings": {"batch_size": batch}}
    return {"step": step, "settings": given}


__all__ = ["BUCKET", "ORIGIN_S", "PAGE_S", "ROOT", "Scene", "large_pages", "models", "null_models", "scene"]
