"""Points, boxes and polygons in pixels; a child's are relative to its parent's box."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw


@dataclass
class Point:
    x: int
    y: int

    def __iter__(self) -> Iterator[int]:
        return iter((self.x, self.y))

    def __getitem__(self, i: int) -> int:
        return (self.x, self.y)[i]

    def __add__(self, other: Iterable[int]) -> "Point":
        x, y = other
        return Point(self.x + x, self.y + y)

    def __neg__(self) -> "Point":
        return Point(-self.x, -self.y)


@dataclass
class Bbox:
    xmin: int
    ymin: int
    xmax: int
    ymax: int

    def __post_init__(self) -> None:
        self.xmin, self.ymin, self.xmax, self.ymax = (int(edge) for edge in self)

    def __iter__(self) -> Iterator[int]:
        return iter((self.xmin, self.ymin, self.xmax, self.ymax))

    def __getitem__(self, i: int) -> int:
        return tuple(self)[i]

    @property
    def width(self) -> int:
        return self.xmax - self.xmin

    @property
    def height(self) -> int:
        return self.ymax - self.ymin

    @property
    def p1(self) -> Point:
        return Point(self.xmin, self.ymin)

    def polygon(self) -> "Polygon":
        left, top, right, bottom = self
        return Polygon([(left, top), (right, top), (right, bottom), (left, bottom)])


class Polygon:
    def __init__(self, points: Iterable[Any]) -> None:
        self.points = [Point(*point) for point in points]
        xs, ys = [p.x for p in self.points], [p.y for p in self.points]
        self.bbox = Bbox(min(xs), min(ys), max(xs), max(ys))

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def __getitem__(self, i: int) -> Point:
        return self.points[i]

    def __len__(self) -> int:
        return len(self.points)

    def __str__(self) -> str:
        return " ".join(f"{x},{y}" for x, y in self.points)

    def move(self, by: Iterable[int]) -> "Polygon":
        dx, dy = by
        return Polygon((x + dx, y + dy) for x, y in self.points)

    width = property(lambda self: self.bbox.width)
    height = property(lambda self: self.bbox.height)
    xmin = property(lambda self: self.bbox.xmin)
    ymin = property(lambda self: self.bbox.ymin)
    xmax = property(lambda self: self.bbox.xmax)
    ymax = property(lambda self: self.bbox.ymax)


def polygon2mask(polygon: Polygon, shape: tuple[int, int]) -> Any:
    """255 inside the polygon, 0 outside, as an array of `shape` (height, width)."""
    mask = Image.new("L", (shape[1], shape[0]))
    ImageDraw.Draw(mask).polygon([tuple(point) for point in polygon], fill=255)
    return np.asarray(mask)
