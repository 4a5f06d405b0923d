"""Whether the text that was recognised is in the files: htrflow drops lines in silence when they have no region.

A line counts as exported when the file has a line of the same characters, white space aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from actors.uploader.markup import BadExport, allowed

FIX = "htrflow writes a line's text only inside a region: segment regions before lines in the pipeline"


def missing_lines(recognized: Iterable[str], exported: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """How many of the `recognized` lines each format of `exported` lacks, for those that lack any.

    Raises:
        BadExport: a format holds none of them (`text_lost`).
    """
    wanted = Counter(bare for text in recognized if (bare := _bare(text)))
    lacking = {}
    for name, lines in exported.items():
        missing = (wanted - Counter(map(_bare, lines))).total()
        if missing and missing == wanted.total():
            raise BadExport(
                f"recognized text not exported: the {name} holds none of its {missing} lines; {FIX}", text_lost=True
            )
        if missing:
            lacking[name] = missing
    return lacking


def _bare(text: str) -> str:
    return "".join(allowed(text).split())
