"""ALTO and PAGE by templates, with the ids, the half-done escaping and the misplaced boxes of the real
ones."""

from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from htrflow.progress import get_steps

_TEMPLATES = Path(__file__).with_name("templates")


class Serializer:
    extension = ".xml"
    template_name = ""

    def __init__(self) -> None:
        self.template = Environment(loader=FileSystemLoader(_TEMPLATES)).get_template(self.template_name)

    def serialize(self, document: Any) -> str:
        return self.template.render(
            document=document,
            steps=get_steps(document),
            version=metadata.metadata("htrflow").get("Version"),
            timestamp=datetime.now(UTC).isoformat(),
        )


class AltoXML(Serializer):
    template_name = "alto"


class PageXML(Serializer):
    template_name = "page"


def get_serializer(name: str) -> Serializer:
    known = {"alto": AltoXML, "altoxml": AltoXML, "page": PageXML, "pagexml": PageXML}
    if name.lower() not in known:
        raise ValueError(f"There is no format {name}; there are {', '.join(known)}")
    return known[name.lower()]()
