"""What a value must be so that the exports are valid and say the same: text, confidences, polygons, names.

htrflow's templates write forbidden characters, NaN and points outside the page as they come (batchpod/README.md,
section 5, Checking). Pure functions; where the values lie in each API's tree is known by document_tidy and
collection_tidy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from actors.gpu.tree import Points

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not allow (section 2.2, Char), lone surrogates included."""
_WHITE = re.compile("[\t\n\r]+")
_NOT_NAME = re.compile(r"[^A-Za-z0-9_.-]")


def clean_text(text: object) -> str:
    """`text` without characters that XML forbids; tabs and line ends become a space."""
    return _WHITE.sub(" ", _FORBIDDEN.sub("", str(text)))


def clean_confidence(value: object) -> float:
    """A number from 0 to 1; None, NaN and what is no number give 0. A number that is fine stays as it is."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0
    if not math.isfinite(number):
        return 0.0
    return number if 0.0 <= number <= 1.0 else min(1.0, max(0.0, number))


def clean_label(label: object) -> str:
    """`label` as a part of an XML name that a number may follow without two labels becoming one."""
    name = _NOT_NAME.sub("_", str(label)) or "region"
    return name + "_" if name[-1].isdigit() else name


def clean_polygon(points: Iterable[Any], width: int, height: int, around: Points | None = None) -> Points:
    """Whole pixels on the page (x from 0 to `width`, y from 0 to `height`), at least three distinct, with
    some extent.

    Points that are not finite are left out; what is then no polygon becomes a box of at least one pixel, at
    the corner of `around` (by default the page) where nothing is left of it.
    """
    clean = [(min(max(x, 0), width), min(max(y, 0), height)) for x, y in _finite(points)]
    if len(set(clean)) >= 3 and all(low < high for low, high in extent(clean)):
        return clean
    (left, right), (top, bottom) = extent(clean or (around or [(0, 0)])[:1])
    return box(*_at_least_one(left, right, width), *_at_least_one(top, bottom, height))


def box(left: int, right: int, top: int, bottom: int) -> Points:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def extent(points: Points) -> tuple[tuple[int, int], tuple[int, int]]:
    """((left, right), (top, bottom)) of a polygon that has points."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return (min(xs), max(xs)), (min(ys), max(ys))


def _finite(points: Iterable[Any]) -> Iterable[tuple[int, int]]:
    for point in points:
        x, y = (float(value) for value in point)
        if math.isfinite(x) and math.isfinite(y):
            yield round(x), round(y)


def _at_least_one(low: int, high: int, limit: int) -> tuple[int, int]:
    low = min(low, max(limit - 1, 0))
    return low, max(high, low + 1)
