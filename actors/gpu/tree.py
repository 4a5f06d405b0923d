"""The sidecar of an exported page: where everything is and what was read, in absolute pixels
(`<name>.tree.json`).

Taken from the tidied tree, so that the check of the exports does not depend on how htrflow writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson

Points = list[tuple[int, int]]
"""A polygon: at least three points (x, y) in pixels of the page, none outside it."""


@dataclass(slots=True)
class Word:
    polygon: Points
    text: str


@dataclass(slots=True)
class Line:
    polygon: Points
    text: str
    words: list[Word] = field(default_factory=list)


@dataclass(slots=True)
class Region:
    polygon: Points
    lines: list[Line] = field(default_factory=list)


@dataclass(slots=True)
class Tree:
    """One page.

    `regions` in the order of the exports. `unplaced` is text of lines that have no region above them
    (htrflow's document API leaves it out of its exports). `segmented`: the pipeline has a segmentation
    step; `dropped`: how many texts were read from something that should have been segmented and was not,
    and were dropped.
    """

    width: int
    height: int
    segmented: bool
    regions: list[Region] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    dropped: int = 0

    @property
    def text(self) -> list[str]:
        """Every recognised line that is not empty, in order."""
        placed = [line.text for region in self.regions for line in region.lines]
        return [text for text in [*placed, *self.unplaced] if text.strip()]

    @property
    def blank(self) -> bool:
        """Whether nothing was read."""
        return not self.text

    def as_json(self) -> bytes:
        return orjson.dumps(
            {
                "width": self.width,
                "height": self.height,
                "segmented": self.segmented,
                "blank": self.blank,
                "regions": list(self._regions()),
                "text": self.text,
            }
        )

    def _regions(self) -> Iterator[dict[str, object]]:
        for region in self.regions:
            yield {
                "polygon": region.polygon,
                "lines": [
                    {
                        "polygon": line.polygon,
                        "text": line.text,
                        "words": [{"polygon": word.polygon, "text": word.text} for word in line.words],
                    }
                    for line in region.lines
                ],
            }
