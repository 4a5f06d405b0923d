"""The steps that a pipeline file can name."""

import os
import threading
from concurrent.futures import as_completed
from dataclasses import dataclass
from typing import Any

from PIL import ImageOps

from htrflow import progress
from htrflow.document import Document, ImageLoader
from htrflow.models import get_model_by_name
from htrflow.pipeline.batched_queue import BatchedQueue
from htrflow.serialization import get_serializer


@dataclass
class StepMetadata:
    description: str
    settings: dict[str, Any]


class PipelineStep:
    metadata: StepMetadata | None = None

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PipelineStep":
        return cls(**config)

    def run(self, document: Document) -> Document:
        raise NotImplementedError

    def __str__(self) -> str:
        return type(self).__name__


class Inference(PipelineStep):
    """A model on the images of the document's leaves, in a thread of the step's own. An exception ends the
    thread."""

    def __init__(self, model: Any, batch_size: int = 1, **generation_kwargs: Any) -> None:
        self.model, self.generation_kwargs = model, generation_kwargs
        self.metadata = StepMetadata(str(self), model.metadata)
        self._queue = BatchedQueue(batch_size)
        self._thread = threading.Thread(target=self._process, daemon=True)
        self._thread.start()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Inference":
        settings = dict(config)
        model = get_model_by_name(settings.pop("model"))
        generation = settings.pop("generation_settings", {})
        return cls(model(**(settings.pop("model_settings", {}) | settings)), **generation)

    def _process(self) -> None:
        while True:
            batch = self._queue.get()
            outputs = self.model([entry.item for entry in batch], **self.generation_kwargs)
            for output, entry in zip(outputs, batch, strict=False):
                entry.future.set_result(output)

    def run(self, document: Document) -> Document:
        nodes = {self._queue.put(image): node for node, image in ImageLoader(document)}
        for future in as_completed(nodes):
            for result in future.result():
                result.attach(nodes[future])
        return document


class Segmentation(Inference):
    pass


class TextRecognition(Inference):
    pass


class OrderLines(PipelineStep):
    def run(self, document: Document) -> Document:
        for node in document.traverse():
            node.regions.sort(key=lambda region: region.polygon.ymin)
        return document


class Invert(PipelineStep):
    """An image step: writes into the working directory and goes on with a new document, read from that
    file."""

    def run(self, document: Document) -> Document:
        os.makedirs("inverted", exist_ok=True)
        path = os.path.join("inverted", f"{document.image_name}.png")
        ImageOps.invert(document.image).save(path)
        return Document(path)


class Export(PipelineStep):
    def __init__(self, dest: str, format: str) -> None:
        self.serializer, self.dest = get_serializer(format), dest

    def run(self, document: Document) -> Document:
        os.makedirs(self.dest, exist_ok=True)
        path = os.path.join(self.dest, document.image_name + self.serializer.extension)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.serializer.serialize(document))
        progress.register_export(document, path)
        return document


class Break(PipelineStep):
    def run(self, document: Document) -> Document:
        raise Exception("Break was told to break")


STEPS = {
    step.__name__.lower(): step
    for step in (Inference, Segmentation, TextRecognition, OrderLines, Invert, Export, Break)
}


def init_step(step: dict[str, Any]) -> PipelineStep:
    return STEPS[step["step"].lower()].from_config(step.get("settings") or {})
