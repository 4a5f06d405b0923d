"""Brings a gpu process up: imports at once, the models when told, then the smoke test if asked for."""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import os
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from actors.gpu import device, engine, load_errors, pipeline_file, smoke, steps, surroundings
from actors.gpu.wraps import Place, Watch
from actors.messages import Imported, Load, Loaded, LoadFailed
from actors.redact import for_log
from actors.specs import GpuSpec
from supervisor.queues import Channel
from supervisor.wire import bounded

log = logging.getLogger(__name__)

_NAMED_MODELS = 20
_NICER = 10
PHASE = 0
"""The task under which the marks show what is done before any page."""


class Loader:
    """`orders` takes the one `Load`; `engine` is set when `Loaded` is sent; `directory` is the
    incarnation's own."""

    def __init__(self, channel: Channel, spec: GpuSpec, watch: Watch) -> None:
        self.orders: queue.SimpleQueue[Load] = queue.SimpleQueue()
        self.engine: engine.Engine | None = None
        self.directory = Path()
        self._channel, self._spec, self._watch = channel, spec, watch
        self._adapter: Any = None

    def run(self) -> None:
        """Import, wait for the order, load. A failure is said, and the process then waits for its end."""
        try:
            with ThreadPoolExecutor(1, "import", _give_way if self._spec.gives_way else None) as thread:
                thread.submit(self._import).result()
            order = self.orders.get()
            self._load(order, time.monotonic())
        except (Exception, SystemExit) as e:
            if not isinstance(e, pipeline_file.PipelineError):  # That one says all there is to know.
                log.warning("%s", device.traceback_text(e))
            sentence = bounded(for_log(load_errors.sentence(e)))
            failed_smoke, full = isinstance(e, smoke.SmokeFailed), load_errors.no_room_in(self.directory, e)
            self._channel.send(LoadFailed(load_errors.is_permanent(e), sentence, failed_smoke, full))
        finally:
            self._channel.marks.clear(PHASE)

    def _import(self) -> None:
        """The hundreds of thousands of objects that imports make live for ever: looking for garbage among them, now
        or between pages, would cost a quarter of the imports' time, and half a second each time later."""
        began_at = time.monotonic()
        self._watch.mark(PHASE, Place("import"), "")
        gc.disable()
        try:
            api, self._adapter = engine.choose()
            gc.freeze()
        finally:
            gc.enable()
        surroundings.quiet()
        self._channel.marks.clear(PHASE)
        torch = str(getattr(sys.modules.get("torch"), "__version__", "none"))
        self._channel.send(Imported(time.monotonic() - began_at, api, _htrflow_version(), torch))

    def _load(self, order: Load, began_at: float) -> None:
        self._watch.mark(PHASE, Place("load"), "")
        surroundings.see_only(order.device)
        self.directory = Path(order.directory).absolute()
        pipeline = Path(self._spec.pipeline_path).absolute()
        built = build(self._adapter, pipeline, self.directory, self._watch, self._spec.pages_in_flight)
        if order.smoke:
            smoke.test(built, self._watch)
        built.start()
        gc.freeze()
        models = tuple(steps.label_of(step)[:100] for step in built.steps if getattr(step, "model", None) is not None)
        self._channel.marks.clear(PHASE)
        self.engine = built
        self._channel.send(Loaded(time.monotonic() - began_at, built.capacity, models[:_NAMED_MODELS]))


def _give_way() -> None:
    """Let everything else run before the calling thread: these imports take no CPU from the pages under way."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICER)


def build(adapter: Any, pipeline: Path, directory: Path, watch: Watch, capacity: int) -> engine.Engine:
    """The pipeline in the file `pipeline` (absolute) with every model loaded; `directory` becomes the current one.

    Raises:
        PipelineError: the file's own mistakes.
        Exception: whatever htrflow and its models raise; `load_errors` judges it.
    """
    base = Path.cwd()
    recipe = _checked(pipeline, base, adapter.step_names())
    _link_paths(recipe, base, directory)
    os.chdir(directory)
    built: engine.Engine = adapter.load(recipe, pipeline, watch, capacity)
    return built


def _checked(pipeline: Path, base: Path, known: list[str]) -> list[dict[str, Any]]:
    """The steps of the pipeline file.

    Raises:
        PipelineError: they cannot work; every mistake that can be seen before a model is loaded.
    """
    text = pipeline_file.read_text(pipeline)
    problems = pipeline_file.check_pipeline(text, base)
    if not problems:
        recipe = pipeline_file.read_steps(text)
        problems = [
            f"step {n}: there is no step {step['step']}; this htrflow has {', '.join(known)}"
            for n, step in enumerate(recipe, 1)
            if step["step"].lower() not in known
        ]
    if problems:
        raise pipeline_file.PipelineError(problems)
    return recipe


def _link_paths(recipe: list[dict[str, Any]], base: Path, directory: Path) -> None:
    """Make relative paths good from `directory` too, unchanged, since they are part of what is published."""
    for path in pipeline_file.relative_paths(recipe, base):
        link = directory / path.parts[0]
        if not link.is_symlink():
            link.symlink_to(base / path.parts[0])


def _htrflow_version() -> str:
    try:
        return importlib.metadata.version("htrflow")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
