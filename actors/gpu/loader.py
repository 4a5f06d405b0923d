"""Brings a gpu process up: imports at once, the models when told, then the smoke test if asked for."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import queue
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from actors.gpu import device, engine, load_errors, pipeline_file, smoke, steps, surroundings
from actors.gpu.wraps import Place, Watch
from actors.messages import Imported, Load, Loaded, LoadFailed
from actors.redact import for_log
from actors.specs import GpuSpec
from supervisor.queues import Channel
from supervisor.wire import bounded

log = logging.getLogger(__name__)

_NAMED_MODELS = 20
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
        self._base = Path.cwd()
        self._adapter: Any = None

    def run(self) -> None:
        """Import, wait for the order, load. A failure is said, and the process then waits for its end."""
        try:
            self._import()
            order = self.orders.get()
            self._load(order, time.monotonic())
        except (Exception, SystemExit) as e:
            log.warning("%s", device.traceback_text(e))
            failed_smoke = isinstance(e, smoke.SmokeFailed)
            sentence = bounded(for_log(load_errors.sentence(e)))
            self._channel.send(LoadFailed(load_errors.is_permanent(e), sentence, smoke=failed_smoke))
        finally:
            self._channel.marks.clear(PHASE)

    def _import(self) -> None:
        began_at = time.monotonic()
        self._watch.mark(PHASE, Place("import"), "")
        api, self._adapter = engine.choose()
        surroundings.quiet()
        self._channel.marks.clear(PHASE)
        torch = str(getattr(sys.modules.get("torch"), "__version__", "none"))
        self._channel.send(Imported(time.monotonic() - began_at, api, _htrflow_version(), torch))

    def _load(self, order: Load, began_at: float) -> None:
        self._watch.mark(PHASE, Place("load"), "")
        surroundings.see_only(order.device)
        self.directory = Path(order.directory).absolute()
        recipe, path = self._recipe()
        os.chdir(self.directory)
        built = self._adapter.load(recipe, path, self._watch, self._spec.pages_in_flight)
        if order.smoke:
            smoke.test(built, self._watch)
        built.start()
        models = tuple(
            steps.label_of(step)[:100] for step in built.steps if getattr(step, "model", None) is not None
        )
        self._channel.marks.clear(PHASE)
        self.engine = built
        self._channel.send(Loaded(time.monotonic() - began_at, built.capacity, models[:_NAMED_MODELS]))

    def _recipe(self) -> tuple[list[dict[str, Any]], Path]:
        """The checked steps, and a file that holds them with paths that are good from any directory."""
        path = self._base / self._spec.pipeline_path
        text = path.read_text(encoding="utf-8")
        problems = pipeline_file.check_pipeline(text, self._base)
        if not problems:
            known = self._adapter.step_names()
            problems = [
                f"step {n}: there is no step {step['step']}; this htrflow has {', '.join(known)}"
                for n, step in enumerate(pipeline_file.read_steps(text), 1)
                if step["step"].lower() not in known
            ]
        if problems:
            raise pipeline_file.PipelineError(problems)
        recipe, changed = pipeline_file.with_absolute_paths(pipeline_file.read_steps(text), self._base)
        if changed:
            path = self.directory / "pipeline.yaml"
            path.write_text(
                yaml.safe_dump({"steps": recipe}, allow_unicode=True, sort_keys=False), encoding="utf-8"
            )
        return recipe, path


def _htrflow_version() -> str:
    try:
        return importlib.metadata.version("htrflow")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
