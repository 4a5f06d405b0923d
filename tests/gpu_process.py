"""A real gpu actor in a real process, driven by hand: what the gpu tests share."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import yaml

from actors.messages import CODEC, Exported, Imported, Load, Loaded, PageFailed, PageStarted, Transcribe
from actors.specs import GpuSpec
from supervisor import arena
from supervisor.clock import Clock
from supervisor.marks import Mark
from supervisor.process import Incarnation, Plan

ROOT = Path(__file__).resolve().parent.parent
DOUBLE = ROOT / "tests" / "doubles" / "htrflow_document"
DEADLINE_S = 120.0
ARENA_BYTES = 32 << 20
Message = TypeVar("Message")
Rgb = npt.NDArray[np.uint8]


def environment(**more: str) -> dict[str, str]:
    """A gpu process's environment."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


@contextlib.contextmanager
def first_on_the_path(folder: Path | None) -> Iterator[None]:
    """A spawned child takes over this process's import path, whatever its own environment says."""
    saved = sys.path[:]
    try:
        sys.path[:] = [*([str(folder)] if folder else []), str(ROOT), *saved]
        yield
    finally:
        sys.path[:] = saved


def document_htrflow(folder: Path) -> Path:
    """The folder of an htrflow with the document API: the stand-in, or a copy of the checkout that
    HTRFLOW_SRC names (the folder that holds its `htrflow` package) with the stand-in's scripted models
    added to it."""
    source = os.environ.get("HTRFLOW_SRC")
    if not source:
        return DOUBLE
    package = folder / "htrflow"
    if not package.exists():
        shutil.copytree(Path(source) / "htrflow", package)
        (package / "__init__.py").touch()
        shutil.copy(DOUBLE / "htrflow" / "models" / "scripted.py", package / "models")
        models = package / "models" / "__init__.py"
        models.write_text(f"{models.read_text()}\n{_ADDED_MODELS}")
    return folder


_ADDED_MODELS = """
from htrflow.models import scripted

_without_scripted = available_models


def available_models():
    return [*_without_scripted(), *scripted.MODELS]
"""


def write_pipeline(path: Path, *steps: Mapping[str, Any]) -> Path:
    """A pipeline file; see `scripted` and `REGIONS` for its steps."""
    path.write_text(yaml.safe_dump({"steps": [dict(step) for step in steps]}, sort_keys=False))
    return path


def scripted(step: str, model_class: str, *, batch_size: int = 4, **settings: Any) -> dict[str, Any]:
    """A step with one of the stand-in's models
    (tests/doubles/htrflow_document/htrflow/models/scripted.py)."""
    return {
        "step": step,
        "settings": {
            "model": model_class,
            "model_settings": settings,
            "generation_settings": {"batch_size": batch_size},
        },
    }


def three_steps(
    regions: Mapping[str, Any] | None = None,
    lines: Mapping[str, Any] | None = None,
    text: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], ...]:
    """The usual pipeline, regions, lines, text; each with more settings."""
    return (
        scripted(
            "Segmentation",
            "ScriptedSegmenter",
            **{"model": "test/regions", "rows": 2, "batch_size": 1, **(regions or {})},
        ),
        scripted("Segmentation", "ScriptedSegmenter", **{"model": "test/lines", "rows": 3, **(lines or {})}),
        scripted("TextRecognition", "ScriptedReader", **{"model": "test/reader", **(text or {})}),
        {"step": "OrderLines"},
    )


def picture(seed: int, width: int = 160, height: int = 120) -> Rgb:
    """A page of noise, (height, width, 3), another for each seed."""
    return np.random.default_rng(seed).integers(0, 200, (height, width, 3), np.uint8)


def blank(width: int = 160, height: int = 120) -> Rgb:
    return np.full((height, width, 3), 255, np.uint8)


class GpuProcess:
    """One incarnation with an arena of its own; pages are put into it by `show`."""

    def __init__(
        self,
        pipeline: Path,
        directory: Path,
        htrflow: Path | None,
        env: Mapping[str, str],
        pages_in_flight: int,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._fd = arena.create(ARENA_BYTES)
        self._reader = arena.read_only(self._fd)
        self._pixels = arena.view(self._fd, ARENA_BYTES, writable=True)
        spec = GpuSpec(str(pipeline), ARENA_BYTES, pages_in_flight, online=False)
        plan = Plan(
            name="gpu-0",
            entry="actors.gpu.actor:main",
            codec=CODEC,
            codec_name="actors.messages:CODEC",
            spec=spec,
            environment=env,
            descriptors={"arena": self._reader},
        )
        with first_on_the_path(htrflow):
            self.incarnation = Incarnation(plan, 1, Clock())
        self.messages: list[Any] = []
        self._output = bytearray()
        self._drain = threading.Thread(target=self._read_output, daemon=True)
        self._drain.start()
        self._used = 0

    def _read_output(self) -> None:
        os.set_blocking(self.incarnation.output.fd, True)
        with contextlib.suppress(OSError):
            while data := os.read(self.incarnation.output.fd, 65536):
                self._output += data

    @property
    def log(self) -> str:
        return self._output.decode("utf-8", "replace")

    def send(self, message: Any) -> None:
        self.incarnation.outgoing.put(message)

    def poll(self) -> None:
        self.incarnation.outgoing.flush()
        self.messages += self.incarnation.incoming.take()

    def until(self, found: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """The first true value of `found()`, polled; the log is in the error if none comes in time."""
        end = time.monotonic() + deadline_s
        while True:
            self.poll()
            value = found()
            if value:
                return value
            if time.monotonic() > end or (self.incarnation.incoming.ended and self.incarnation.has_died()):
                self.poll()
                value = found()
                if value:
                    return value
                raise AssertionError(f"{what} did not come; had {self.messages}\n{self.log}")
            time.sleep(0.002)

    def take(self, kind: type[Message]) -> Message:
        """The next message of that type, waited for and removed."""

        def first() -> Any:
            return next((m for m in self.messages if isinstance(m, kind)), None)

        message = self.until(first, kind.__name__)
        self.messages.remove(message)
        return message  # type: ignore[no-any-return]

    def load(self, *, smoke: bool = False, device: str | None = None) -> Loaded:
        self.take(Imported)
        self.send(Load(device, str(self.directory), smoke))
        return self.take(Loaded)

    def show(self, page: int, rgb: Rgb) -> None:
        """Put a page into the arena and hand it over."""
        height, width = rgb.shape[:2]
        offset, self._used = self._used, self._used + rgb.nbytes
        self._pixels[offset : offset + rgb.nbytes] = np.ascontiguousarray(rgb).tobytes()
        self.send(Transcribe(page, offset, width, height))

    def outcome(self, page: int) -> Exported | PageFailed:
        """What became of `page`, which was announced before."""
        kinds = Exported | PageFailed

        def mine() -> Any:
            return next((m for m in self.messages if isinstance(m, kinds) and m.page == page), None)

        message: Exported | PageFailed = self.until(mine, f"the outcome of page {page}")
        self.messages.remove(message)
        if PageStarted(page) in self.messages:
            self.messages.remove(PageStarted(page))
        return message

    def transcribe(self, page: int, rgb: Rgb) -> Exported | PageFailed:
        self.show(page, rgb)
        return self.outcome(page)

    def exported(self, page: int) -> tuple[str, str, bytes]:
        """The ALTO, the PAGE and the sidecar of an exported page."""
        name = f"{page:04d}"
        alto, page_xml = (self.directory / f"{name}.{kind}.xml" for kind in ("alto", "page"))
        return alto.read_text(), page_xml.read_text(), (self.directory / f"{name}.tree.json").read_bytes()

    def overwrite(self, value: int = 0) -> None:
        """Another page is decoded over everything in the arena."""
        self._pixels[:] = bytes([value]) * ARENA_BYTES

    def marks(self) -> dict[int, Mark]:
        return {mark.task: mark for mark in self.incarnation.marks.tasks()}

    def died(self) -> Any:
        """Wait for the process to end by itself, and say how it did."""
        self.until(self.incarnation.has_died, "the end of the process")
        self.poll()
        return self.incarnation.reap()

    def close(self) -> None:
        self.incarnation.reap()
        self._drain.join()
        self.incarnation.close()
        self._pixels.release()
        os.close(self._fd)
        os.close(self._reader)


@contextlib.contextmanager
def gpu_process(
    pipeline: Path,
    directory: Path,
    htrflow: Path | None = DOUBLE,
    env: Mapping[str, str] | None = None,
    pages_in_flight: int = 2,
) -> Iterator[GpuProcess]:
    """A gpu actor; `htrflow` is the folder of the htrflow package it finds first, None for the installed
    one."""
    process = GpuProcess(pipeline, directory, htrflow, env or environment(), pages_in_flight)
    try:
        yield process
    finally:
        process.close()
