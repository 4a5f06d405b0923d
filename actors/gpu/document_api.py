"""htrflow's document API (AI-Riksarkivet/htrflow, main): pages overlap, each model step has a thread.

The page is a `Document` whose image is the arena block. The registries of `htrflow.progress`, which hold
every document for ever, are emptied per page, and its live display, which would fill the run log, is
stopped.
"""

from __future__ import annotations

import functools
import importlib.metadata
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from htrflow import document as htrflow_document
from htrflow import progress
from htrflow.document import Document, Region
from htrflow.pipeline.pipeline import Pipeline
from htrflow.pipeline.steps import STEPS, Inference
from htrflow.serialization import AltoXML, PageXML
from htrflow.utils.geometry import Bbox, polygon2mask
from PIL import Image

from actors.gpu.batches import OnePageQueue
from actors.gpu.document_tidy import settle_births, tidy
from actors.gpu.engine import report_dropped
from actors.gpu.exports import EscapingTemplate, Exports
from actors.gpu.masking import over_arrays
from actors.gpu.pixels import PageImage
from actors.gpu.steps import place_of, segmentations
from actors.gpu.wraps import Place, Watch, wrap_predict, wrap_step
from actors.messages import page_name

_REGISTRIES = (progress._tasks, progress._exports, progress._steps)
_IDLE_S = 3600.0


class PageDocument(Document):  # type: ignore[misc]
    """A document without a file."""

    def __init__(self, name: str, image: Image.Image) -> None:
        self.image_name = name
        self._image = image
        Region.__init__(self, Bbox(0, 0, image.width, image.height).polygon())

    @property
    def image(self) -> Image.Image:
        return self._image


def step_names() -> list[str]:
    return sorted(STEPS)


def load(steps: list[dict[str, Any]], pipeline: Path, watch: Watch, capacity: int) -> DocumentEngine:
    """Build the pipeline in the file `pipeline`; its models are loaded when this returns."""
    progress._progress.stop()
    progress._progress.console.quiet = True
    Image.MAX_IMAGE_PIXELS = None
    # Read and parsed anew, from its package's files, for each file that it exports (3 ms a page).
    importlib.metadata.metadata = functools.cache(importlib.metadata.metadata)
    htrflow_document.polygon_mask = over_arrays(htrflow_document.polygon_mask, polygon2mask)
    return DocumentEngine(Pipeline.from_config(str(pipeline)), watch, capacity)


class DocumentEngine:
    """See `actors.gpu.engine.Engine`."""

    def __init__(self, pipeline: Any, watch: Watch, capacity: int) -> None:
        self.capacity = capacity
        self.steps = list(pipeline.steps)
        self._pipeline, self._watch = pipeline, watch
        self._segmenting = segmentations(self.steps)
        self._workers: list[tuple[Place, threading.Thread]] = []
        self._alto, self._page = AltoXML(), PageXML()
        self._alto.template = EscapingTemplate(self._alto.template)
        self._page.template = EscapingTemplate(self._page.template)

    def start(self) -> None:
        for index, step in enumerate(self.steps):
            place = place_of(step)
            run = step.run
            if isinstance(step, Inference):
                run = self._guard_model_step(step, place)
            if index in self._segmenting:
                run = _settling(run, self._segmenting.index(index) + 1)
            wrap_step(step, run, place, self._watch)

    def smoke_input(self, rgb: npt.NDArray[np.uint8]) -> Any:
        return Image.fromarray(rgb)

    def smoke_settings(self, step: Any) -> dict[str, Any]:
        return dict(step.generation_kwargs)

    def unfit(self, step: Any) -> str | None:
        task = getattr(getattr(step.model, "model", None), "task", None)
        if task in ("detect", "pose"):
            return f"it is a {task} model, and this htrflow needs a segmentation model there"
        return None

    def transcribe(self, page: int, pixels: npt.NDArray[np.uint8]) -> Exports:
        name = page_name(page)
        image = PageImage(pixels)
        document = PageDocument(name, image)
        result = document
        try:
            result = self._pipeline.run(document)
            self._watch.at(Place("Export"))
            result.image_name = name
            tree = tidy(result, image.width, image.height, len(self._segmenting))
            report_dropped(name, tree)
            return Exports(self._alto.serialize(result), self._page.serialize(result), tree)
        finally:
            _forget(name)
            image.close()

    def dead_threads(self) -> list[str]:
        return [str(place) for place, thread in self._workers if not thread.is_alive()]

    def _guard_model_step(self, step: Any, place: Place) -> Any:
        """Swap the step's queue. Its first thread stays parked on the old one; a second runs on the new."""
        old, run = step._queue, step.run
        old.patience = _IDLE_S
        step._queue = queue = OnePageQueue(old.batch_size, place, self._watch)
        wrap_predict(step.model, place, self._watch, lambda: self._watch.batch)
        thread = threading.Thread(target=step._process, name=str(place), daemon=True)
        thread.start()
        self._workers.append((place, thread))

        def visiting(document: Any) -> Any:
            page = self._watch.page
            queue.expect(page, len(document.leaves()))
            try:
                return run(document)
            finally:
                queue.leave(page)

        return visiting


def _settling(run: Any, number: int) -> Any:
    def settling(document: Any) -> Any:
        result = run(document)
        settle_births(result, number)
        return result

    return settling


def _forget(name: str) -> None:
    """Take every document of page `name` out of the registries (image steps make new documents on the
    way)."""
    for registry in _REGISTRIES:
        for document in [d for d in list(registry) if d.image_name == name]:
            entry = registry.pop(document, None)
            if registry is progress._tasks and entry is not None:
                progress._progress.remove_task(entry)
