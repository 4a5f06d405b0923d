"""Judging both formats by the schemas that htrflow ships, offline.

The ALTO schema imports xlink from the Library of Congress; a stub of the one attribute group that it uses stands in,
so that nothing is ever fetched. Each schema is read once in a process.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

from lxml import etree

from actors import schemas
from actors.uploader import alto, page
from actors.uploader.markup import Element

_XLINK = """<xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema" targetNamespace="http://www.w3.org/1999/xlink">
  <xsd:attributeGroup name="simpleLink"><xsd:anyAttribute namespace="http://www.w3.org/1999/xlink"/></xsd:attributeGroup>
</xsd:schema>"""
_lock = threading.Lock()
"""A schema keeps its last errors, so one document is judged at a time."""


class _Offline(etree.Resolver):
    # lxml passes and takes a context that its type stubs do not know.
    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:  # type: ignore[override]
        stub = _XLINK if system_url.endswith("xlink.xsd") else None
        return self.resolve_string(stub, context) if stub else None  # type: ignore[call-arg]


def read_schemas() -> None:
    """Read every schema, while no other thread parses anything.

    libxml2 has one loader of documents for the whole process: a parse that ends in another thread takes it away from
    a schema that is being read, whose import then goes unresolved.
    """
    found = _installed()
    if found is not None:
        for path in (found.alto, *found.page.values()):
            _schema(path)


def first_error(root: Element) -> str | None:
    """Why the document is not valid: its first error with its line, or that there is no schema to judge it by; None if
    it is valid."""
    path = _schema_path(root)
    if path is None:
        return f"no schema for {etree.QName(root).namespace or root.tag!r} is installed"
    with _lock:
        schema = _schema(path)
        if isinstance(schema, str):
            return schema
        if schema.validate(root):
            return None
        errors: Any = schema.error_log
        return f"line {errors[0].line}: {errors[0].message}"


def _schema_path(root: Element) -> Path | None:
    found = _installed()
    if found is None:
        return None
    return found.alto if alto.is_alto(root) else found.page.get(page.version(root))


@functools.cache
def _installed() -> schemas.Schemas | None:
    return schemas.find()


@functools.cache
def _schema(path: Path) -> etree.XMLSchema | str:
    """The schema, or why there is none."""
    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(_Offline())
    try:
        return etree.XMLSchema(etree.parse(str(path), parser))
    except (etree.LxmlError, OSError) as e:
        return f"its schema {path} cannot be read: {e}"
