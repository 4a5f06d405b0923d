"""The smoke test: each model is called once on a small image, so that one that cannot run is said before
any page.

The image is drawn here: a few lines of pen strokes on paper.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from actors.gpu import device
from actors.gpu.engine import Engine
from actors.gpu.steps import label_of, place_of
from actors.gpu.wraps import Place, Watch


class SmokeFailed(Exception):
    """A model that was loaded cannot run; `fault` tells whether the device is to blame."""

    def __init__(self, message: str, fault: device.Fault) -> None:
        super().__init__(message)
        self.fault = fault


def image(width: int = 320, height: int = 240) -> npt.NDArray[np.uint8]:
    """Four lines of slanting strokes, (height, width, 3), RGB, the same every time."""
    paper = np.full((height, width, 3), 235, np.uint8)
    strokes = np.random.default_rng(7)
    for top in range(30, height - 40, 50):
        for left in range(20, width - 30, 9):
            length = int(strokes.integers(8, 22))
            for y in range(length):
                x = left + y // 3
                paper[top + 22 - y, x : x + 2] = 40
    return paper


def test(engine: Engine, watch: Watch) -> None:
    """Call every model of `engine` once.

    Raises:
        SmokeFailed: the first that cannot run, and why.
    """
    picture = engine.smoke_input(image())
    for step in engine.steps:
        if getattr(step, "model", None) is None:
            continue
        watch.mark(0, Place("smoke", place_of(step).model), "")
        unfit = engine.unfit(step)
        if unfit is not None:
            raise SmokeFailed(f"{type(step).__name__}: {label_of(step)} cannot be used: {unfit}", device.Fault.ORDINARY)
        try:
            for result in step.model([picture], **engine.smoke_settings(step)):
                if isinstance(result, list):
                    list(result)
        except Exception as e:
            message = f"{type(step).__name__}: {label_of(step)} does not run: {device.in_words(e)}"
            raise SmokeFailed(message, device.fault_of(e)) from e
