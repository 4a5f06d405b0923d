"""htrflow's collection API (0.2.6 on PyPI): one page at a time, models load in the first `run` or when told.

The page is a `PageNode` over the arena block. Its models take contiguous BGR arrays (torch refuses the
reversed view), so the block is converted once, when first looked at, and nothing of htrflow ever holds the
block itself.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from htrflow.pipeline.pipeline import Pipeline
from htrflow.pipeline.steps import STEPS, Inference
from htrflow.serialization import AltoXML, PageXML
from htrflow.utils.geometry import Bbox
from htrflow.utils.imgproc import read
from htrflow.volume.node import Node
from htrflow.volume.volume import Collection, PageNode

from actors.gpu.collection_tidy import settle_births, tidy
from actors.gpu.engine import report_dropped
from actors.gpu.exports import EscapingTemplate, Exports, empty_page
from actors.gpu.pixels import Pixels
from actors.gpu.steps import place_of, segmentations
from actors.gpu.wraps import Batch, Place, Watch, wrap_predict, wrap_step
from actors.messages import page_name


class ArenaPage(PageNode):  # type: ignore[misc]
    """A page without a file. Its label begins with a letter, since XML ids are made of it."""

    def __init__(self, name: str, pixels: Pixels) -> None:
        self.path = self._own_path = f"{name}.png"
        self._pixels: Pixels | None = pixels
        self._size = (pixels.shape[1], pixels.shape[0])
        self._bgr: Pixels | None = None
        self._image = None
        Node.__init__(self, None, f"p{name}")
        self.add_data(file_name=name, image_path=self.path, image_name=name)

    @property
    def bbox(self) -> Any:
        return Bbox(0, 0, *self._size)

    def _load_image(self) -> Any:
        """htrflow drops the image after each segmentation and asks again; image steps set another path."""
        if self.path != self._own_path:
            return read(self.path)
        if self._bgr is None:
            assert self._pixels is not None
            self._bgr = np.ascontiguousarray(self._pixels[:, :, ::-1])
        return self._bgr

    def let_go(self) -> None:
        self._pixels = self._bgr = None
        self.clear_images()


def step_names() -> list[str]:
    return sorted(STEPS)


def load(steps: list[dict[str, Any]], pipeline: Path, watch: Watch, capacity: int) -> CollectionEngine:
    """Build the pipeline from `steps` and load its models now."""
    built = Pipeline.from_config({"steps": copy.deepcopy(steps)})
    for step in built.steps:
        if isinstance(step, Inference) and step.model is None:
            name = str(step.model_kwargs.get("model") or step.model_class.__name__)
            watch.mark(0, Place("load", name), "")
            step._init_model()
    return CollectionEngine(built, watch)


class CollectionEngine:
    """See `actors.gpu.engine.Engine`."""

    capacity = 1

    def __init__(self, pipeline: Any, watch: Watch) -> None:
        self.steps = list(pipeline.steps)
        self._pipeline, self._watch = pipeline, watch
        self._segmenting = segmentations(self.steps)
        self._batch = Batch(0, 0, 0)
        self._alto, self._page = AltoXML(), PageXML()
        self._alto.template = EscapingTemplate(self._alto.template)
        self._page.template = EscapingTemplate(self._page.template)

    def start(self) -> None:
        for index, step in enumerate(self.steps):
            place = place_of(step)
            run = step.run
            if isinstance(step, Inference):
                wrap_predict(step.model, place, self._watch, self._next_batch)
                run = self._counting(step, run)
            if index in self._segmenting:
                run = _settling(run, self._segmenting.index(index) + 1)
            wrap_step(step, run, place, self._watch)

    def smoke_input(self, rgb: npt.NDArray[np.uint8]) -> Any:
        return np.ascontiguousarray(rgb[:, :, ::-1])

    def smoke_settings(self, step: Any) -> dict[str, Any]:
        return dict(step.generation_kwargs)

    def unfit(self, step: Any) -> str | None:
        return None

    def transcribe(self, page: int, pixels: npt.NDArray[np.uint8]) -> Exports:
        name = page_name(page)
        node = ArenaPage(name, pixels)
        collection = Collection.__new__(Collection)
        collection.pages, collection.label = [node], name
        try:
            self._pipeline.run(collection)
            self._watch.at(Place("Export"))
            width, height = node._size
            tree = tidy(node, width, height, len(self._segmenting))
            report_dropped(name, tree)
            alto = self._alto.serialize(node, processing_steps=self._pipeline.metadata())
            return Exports(alto, self._page.serialize(node) or empty_page(name, width, height), tree)
        finally:
            node.let_go()
            self._drop_last_batches()

    def dead_threads(self) -> list[str]:
        return []

    def _counting(self, step: Any, run: Any) -> Any:
        size = max(1, int(step.generation_kwargs.get("batch_size", 1)))

        def counting(collection: Any) -> Any:
            self._batch = Batch(self._watch.page, 0, -(-len(collection.segments()) // size))
            return run(collection)

        return counting

    def _next_batch(self) -> Batch:
        last = self._batch
        self._batch = Batch(last.page, last.number + 1, max(last.total, last.number + 1))
        return self._batch

    def _drop_last_batches(self) -> None:
        """A YOLO's predictor keeps its last images until the next batch."""
        for step in self.steps:
            predictor = getattr(getattr(getattr(step, "model", None), "model", None), "predictor", None)
            for held in ("dataset", "batch", "results"):
                if hasattr(predictor, held):
                    setattr(predictor, held, None)


def _settling(run: Any, number: int) -> Any:
    def settling(collection: Any) -> Any:
        result = run(collection)
        for page in result:
            settle_births(page, number)
        return result

    return settling
