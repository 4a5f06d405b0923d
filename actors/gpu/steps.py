"""What the steps of a built pipeline are: which segment, which read, what their models are called."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from actors.gpu.wraps import Place

_SEGMENTERS = frozenset({"YOLO", "RTMDet", "PPDocLayoutV3"})
"""Model classes that segment; a plain `Inference` step may hold one."""


def place_of(step: Any) -> Place:
    """The step's class and the last part of its model's name."""
    return Place(type(step).__name__, _model_name(step).rsplit("/", 1)[-1])


def label_of(step: Any) -> str:
    """The step's model for the log: `YOLO demo/regions`."""
    return " ".join(part for part in (type(step.model).__name__, _model_name(step)) if part)


def segmentations(steps: Sequence[Any]) -> list[int]:
    """Indexes of the steps that segment, up to the first that reads text."""
    found: list[int] = []
    for index, step in enumerate(steps):
        if _segments(step):
            found.append(index)
        elif getattr(step, "model", None) is not None:
            break
    return found


def _segments(step: Any) -> bool:
    names = {c.__name__ for c in type(step).__mro__}
    return bool(names & {"Segmentation", "ImportSegmentation"}) or type(_model(step)).__name__ in _SEGMENTERS


def _model(step: Any) -> Any:
    return getattr(step, "model", None)


def _model_name(step: Any) -> str:
    metadata = getattr(_model(step), "metadata", None) or {}
    name = str(metadata.get("model") or "")
    if os.path.isabs(name):
        return os.path.basename(name.rstrip("/"))
    return name or (type(_model(step)).__name__ if _model(step) is not None else "")
