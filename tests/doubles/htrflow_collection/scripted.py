"""Scripted models for htrflow's collection API (0.2.6), put into a copy of the installed package by the tests.

They know the page by the thread's name, as those of the document API's stand-in do. Faults of both, per page name:
`raise[:text]`, `raise_batch` and `oom_batch` (only batches of several), `oom`.
"""

import re
import threading
import zlib

from htrflow.models.base_model import BaseModel
from htrflow.results import Result


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


class Scripted(BaseModel):
    def __init__(self, model="test/scripted", faults=None, **kwargs):
        super().__init__(device="cpu", **kwargs)
        self.metadata["model"] = model
        self._faults = faults or {}

    def _predict(self, images, **kwargs):
        page = re.search(r"page (\S+)", threading.current_thread().name)
        kind, _, text = self._faults.get(page.group(1) if page else "smoke", "").partition(":")
        if kind == "raise" or (kind == "raise_batch" and len(images) > 1):
            raise ValueError(text or "told to raise")
        if kind == "oom" or (kind == "oom_batch" and len(images) > 1):
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB.")
        return [self._result(image) for image in images]


class ScriptedSegmenter(Scripted):
    def __init__(self, rows=2, label="text line 1", **kwargs):
        super().__init__(**kwargs)
        self._rows, self._label = rows, label

    def _result(self, image):
        height, width = image.shape[:2]
        if image.min() > 240:
            return Result(self.metadata)
        tops = [round((0.05 + row * 0.9 / self._rows) * height) for row in range(self._rows)]
        boxes = [(width // 20, top, width - width // 20, top + round(0.7 * height / self._rows)) for top in tops]
        return Result.segmentation_result(
            image.shape[:2], self.metadata, bboxes=boxes, scores=[0.9] * len(boxes), labels=[self._label] * len(boxes)
        )


class ScriptedReader(Scripted):
    def _result(self, image):
        text = f"ink {zlib.crc32(image.tobytes()):08x} <&> \x0b\ud800å"
        return Result.text_recognition_result(self.metadata, [text], [float("nan")])
