"""Where the XML schemas lie that htrflow ships: found in its package folder, without importing it.

Every entry of the import path is looked at, not only the first with an htrflow: one that lies in front of the
installed package may come without schemas.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Schemas:
    """`alto` is ALTO 4.4, `page` maps a PAGE namespace's date (`2019-07-15`) to its schema."""

    alto: Path
    page: dict[str, Path]


def find(search: list[str] | None = None) -> Schemas | None:
    """The first complete set of schemas on the import path (`search`, by default sys.path); None if there
    is none."""
    for entry in sys.path if search is None else search:
        folder = Path(entry or ".") / "htrflow" / "serialization" / "schemas"
        alto = folder / "alto-4-4.xsd"
        page = {date: path for path in sorted(folder.glob("page*.xsd")) if (date := _namespace_date(path))}
        if alto.is_file() and page:
            return Schemas(alto, page)
    return None


def _namespace_date(path: Path) -> str:
    head = path.read_text(encoding="utf-8", errors="replace")[:4000]
    _, mark, rest = head.partition("PAGE/gts/pagecontent/")
    return rest[:10] if mark else ""
