"""Models that do what the pipeline file tells them, in this stand-in and in htrflow's own document API.

`ScriptedSegmenter` finds `rows` bands (or `boxes`, in fractions of the image) in any image that is not white.
`ScriptedReader` reads words that depend on the pixels alone, so the same crop gives the same text everywhere.

Settings of both, under `model_settings`:

    model: any name, for metadata
    seconds_per_batch, seconds_per_image: how long a call takes
    trace: a file that gets one JSON line a call (model, page, images, start, end (monotonic), pid, device, and from a
        segmenter the address of the first image's pixels)
    faults: {page name, `*` for any page, `smoke`, or `device N` for anything on that device: what happens then}
    state: a folder in which faults and loads are counted across processes
    load_seconds
    load_error: `OSError: text`, or `hang`
    load_failures: how many loads fail with it; all if absent

A fault is one of

    hang, hang_gil, hang_child (in a subprocess), slow:<seconds>, leak:<MiB>
    raise[:text], oom, cuda, system_exit, and only for batches of several raise_batch, oom_batch
    segv, kill, exit[:code]
    short (one result too few); for segmenters nothing, degenerate, outside
    for readers illegal, empty, nan, say:<text>

with `once:` before it, it happens once in `state`; with `while:<name>:`, as long as a file of that name lies there.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import math
import os
import re
import signal
import subprocess
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from htrflow.document import Region, Text
from htrflow.models.base_model import BaseModel
from htrflow.utils.geometry import Bbox, Polygon

_WORDS = [
    "bonden",
    "skrev",
    "till",
    "prästen",
    "i",
    "Härnösand",
    "om",
    "smör",
    "och",
    "råg",
    "från",
    "Åland",
    "år",
    "efter",
    "år",
]
_LEAKED: list[bytearray] = []


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


class Scripted(BaseModel):
    def __init__(
        self,
        model: str = "test/scripted",
        seconds_per_batch: float = 0.0,
        seconds_per_image: float = 0.0,
        trace: str | None = None,
        faults: dict[str, str] | None = None,
        state: str | None = None,
        load_seconds: float = 0.0,
        load_error: str | None = None,
        load_failures: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.metadata["model"] = model
        self._name, self._trace, self._faults = model, trace, faults or {}
        self._state = Path(state) if state else None
        self._seconds = seconds_per_batch, seconds_per_image
        time.sleep(load_seconds)
        if load_error == "hang":
            _hang()
        if load_error and (load_failures is None or self._count("load") <= load_failures):
            kind, _, text = load_error.partition(":")
            raise getattr(builtins, kind)(text.strip())

    def _predict(self, images: list[Any]) -> list[Any]:
        page = _page()
        start = time.monotonic()
        fault = self._fault(page)
        per_batch, per_image = self._seconds
        time.sleep(per_batch + per_image * len(images))
        self._suffer(fault, len(images))
        results = [self._result(image, fault) for image in images]
        if self._trace:
            line = {
                "model": self._name,
                "page": page,
                "images": len(images),
                "start": start,
                "pid": os.getpid(),
                "device": os.environ.get("CUDA_VISIBLE_DEVICES"),
                **self._noted(images),
            }
            _append(self._trace, json.dumps({**line, "end": time.monotonic()}))
        return results[:-1] if fault == "short" else results

    def _fault(self, page: str) -> str:
        device = self._faults.get(f"device {os.environ.get('CUDA_VISIBLE_DEVICES')}")
        fault = self._faults.get(page) or (self._faults.get("*") if page.isdigit() else None) or device or ""
        if fault.startswith("while:"):
            _, name, fault = fault.split(":", 2)
            return fault if self._state and (self._state / name).exists() else ""
        if fault.startswith("once:"):
            fault = fault.removeprefix("once:")
            return fault if self._count(f"{page}-{fault.partition(':')[0]}") == 1 else ""
        return fault

    def _count(self, what: str) -> int:
        """How many times `what` has happened, this time included."""
        if self._state is None:
            raise ValueError("what happens a number of times needs a `state` folder")
        path = self._state / f"{self._name.replace('/', '-')}-{what}"
        _append(str(path), "x")
        return len(path.read_text().split())

    def _suffer(self, fault: str, images: int) -> None:
        kind, _, argument = fault.partition(":")
        match kind:
            case "hang":
                _hang()
            case "hang_gil":
                _hang_with_the_gil()
            case "hang_child":
                subprocess.run(["sleep", "3600"], check=False)
            case "raise":
                raise ValueError(argument or "the model was told to raise")
            case "raise_batch" if images > 1:
                raise ValueError("the model was told to raise on a batch")
            case "oom":
                raise OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB.")
            case "oom_batch" if images > 1:
                raise OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB.")
            case "cuda":
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            case "segv":
                signal.pthread_kill(threading.get_ident(), signal.SIGSEGV)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(int(argument or 3))
            case "system_exit":
                raise SystemExit(3)
            case "leak":
                _LEAKED.append(bytearray(os.urandom(1024)) * (int(argument) * 1024))
            case "slow":
                time.sleep(float(argument))

    def _result(self, image: Any, fault: str) -> list[Any]:
        raise NotImplementedError

    def _noted(self, images: list[Any]) -> dict[str, Any]:
        """More of a call for the trace."""
        return {}


class ScriptedSegmenter(Scripted):
    def __init__(
        self, rows: int = 1, boxes: list[list[float]] | None = None, label: str = "region", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        height = 0.9 / rows
        bands = [[0.05, 0.05 + row * height, 0.95, 0.05 + (row + 0.8) * height] for row in range(rows)]
        self._boxes, self._label = bands if boxes is None else boxes, label

    def _result(self, image: Any, fault: str) -> list[Any]:
        if fault == "nothing" or _white(image):
            return []
        return [
            Region(polygon, segmentation_confidence=0.9, segmentation_label=self._label)
            for polygon in self._polygons(*image.size, fault)
        ]

    def _noted(self, images: list[Any]) -> dict[str, Any]:
        return {"address": np.asarray(images[0]).__array_interface__["data"][0]}

    def _polygons(self, width: int, height: int, fault: str) -> list[Polygon]:
        if fault == "degenerate":
            return [
                Polygon([(5, 5)]),
                Polygon([(3, 9), (30, 9), (40, 9)]),
                *self._polygons(width, height, ""),
            ]
        if fault == "outside":
            return [
                Polygon(
                    [
                        (-9, -7),
                        (width + 40, 3),
                        (width + 40, height + 9),
                        (width // 2, height + 30),
                        (-9, height),
                    ]
                )
            ]
        return [
            Bbox(
                left * width,
                top * height,
                max(right * width, left * width + 1),
                max(bottom * height, top * height + 1),
            ).polygon()
            for left, top, right, bottom in self._boxes
        ]


class ScriptedReader(Scripted):
    def __init__(self, words: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._words = words

    def _result(self, image: Any, fault: str) -> list[Any]:
        text, confidence = self._read(image, fault), 0.75
        if fault == "nan":
            confidence = math.nan
        found: list[Any] = [Text(text, confidence)]
        if self._words and text:
            words = text.split()
            step = max(1, image.width // len(words))
            for number, word in enumerate(words):
                box = Bbox(number * step, 0, (number + 1) * step, image.height)
                found.append(Region(box.polygon(), transcription=[Text(word, confidence)]))
        return found

    def _read(self, image: Any, fault: str) -> str:
        kind, _, argument = fault.partition(":")
        if kind == "say":
            return argument
        if kind == "empty":
            return ""
        digest = zlib.crc32(image.tobytes())
        text = " ".join(_WORDS[(digest >> shift) % len(_WORDS)] for shift in (0, 7, 14, 21))
        return f"\x00\x0b{text}\ud800\ufffe\t<&\"'>" if kind == "illegal" else text


MODELS = (ScriptedSegmenter, ScriptedReader)


def _page() -> str:
    """The page that the calling thread works for, which its name tells; `smoke` before there are pages."""
    match = re.search(r"page (\S+)", threading.current_thread().name)
    return match.group(1) if match else "smoke"


def _white(image: Any) -> bool:
    """Whether nothing stands on the page. As a YOLO model does, it looks at the pixels as an array and scaled down."""
    pixels = np.asarray(image)
    step = max(1, min(pixels.shape[:2]) // 512)
    return bool(pixels[::step, ::step].min(initial=255) > 240)


def _hang() -> None:
    while True:
        time.sleep(3600)


def _hang_with_the_gil() -> None:
    sleep = ctypes.PyDLL(None).sleep
    while True:
        sleep(3600)


def _append(path: str, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)
