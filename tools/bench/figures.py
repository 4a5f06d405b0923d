"""What a case gives, and how all of it is shown: one table, one JSON document. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

_HEAD = ("case", "figure", "measured", "ideal", "ratio", "to reach", "")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `at_least` turns the limit round; `notes` say where the rest went."""

    name: str
    value: float
    unit: str
    limit: float
    ideal: float | None = None
    at_least: bool = False
    notes: str = ""

    @property
    def reached(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def ratio(self) -> float | None:
        """Measured over ideal."""
        return self.value / self.ideal if self.ideal else None


@dataclass(frozen=True, slots=True)
class Result:
    """A case's figures, or why there are none: `error` (it counts as missed) or `left_out` (it does not)."""

    case: str
    figures: tuple[Figure, ...] = ()
    error: str = ""
    left_out: str = ""

    @property
    def reached(self) -> bool:
        return not self.error and all(figure.reached for figure in self.figures)


def document(results: Iterable[Result], machine: dict[str, Any]) -> dict[str, Any]:
    """The JSON form."""
    cases = [
        {
            "case": result.case,
            "reached": result.reached,
            "error": result.error,
            "left_out": result.left_out,
            "figures": [asdict(f) | {"ratio": f.ratio, "reached": f.reached} for f in result.figures],
        }
        for result in results
    ]
    return {"machine": machine, "reached": all(case["reached"] for case in cases), "cases": cases}


def table(results: Iterable[Result]) -> str:
    """The text form, notes below it."""
    rows, notes = [_HEAD], []
    for result in results:
        if not result.figures:
            rows.append((result.case, result.error or result.left_out, "", "", "", "", "MISSED" if result.error else "left out"))
        for f in result.figures:
            sign = ">=" if f.at_least else "<="
            ideal = "" if f.ideal is None else f"{f.ideal:.4g}"
            ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
            verdict = "ok" if f.reached else "MISSED"
            rows.append((result.case, f.name, f"{f.value:.4g} {f.unit}", ideal, ratio, f"{sign} {f.limit:.4g}", verdict))
            if f.notes:
                notes.append(f"{result.case}, {f.name}: {f.notes}")
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *([""] if notes else []), *notes])
