"""The second Processing element of every published ALTO: which image made it, on which htrflow.

htrflow's own elements come first and stay as they are (batchpod/README.md, section 5, Stamping).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from lxml import etree

from actors.uploader.alto import SPACE
from actors.uploader.markup import BadExport, Element

ID = "htrflow-batch"
CREATOR = NAME = "batchpod"
SUMMARY = "Transcribes one volume of page images with htrflow in one pod."


@dataclass(frozen=True, slots=True)
class Provenance:
    """`image` is the container image's digest, `base` the htrflow revision in it, `version` this package's."""

    image: str
    base: str
    version: str


def stamp(root: Element, made_by: Provenance, now: datetime | None = None) -> None:
    """Add the element, in place of one that is there already.

    Raises:
        BadExport: the ALTO has no Layout, so it is none.
    """
    layout = root.find(f"{SPACE}Layout")
    if layout is None:
        raise BadExport("malformed XML: the ALTO has no Layout")
    description = root.find(f"{SPACE}Description")
    if description is None:
        description = etree.Element(f"{SPACE}Description")
        etree.SubElement(description, f"{SPACE}MeasurementUnit").text = "pixel"
        root.insert(0, description)
    for old in description.findall(f"{SPACE}Processing[@ID='{ID}']"):
        description.remove(old)
    description.append(_processing(made_by, now or datetime.now(UTC)))


def _processing(made_by: Provenance, now: datetime) -> Element:
    processing = etree.Element(f"{SPACE}Processing", ID=ID)
    _add(processing, "processingDateTime", now.isoformat(timespec="seconds"))
    _add(processing, "processingStepDescription", f"image={made_by.image}")
    _add(processing, "processingStepDescription", f"htrflow-base={made_by.base}")
    software = etree.SubElement(processing, f"{SPACE}processingSoftware")
    _add(software, "softwareCreator", CREATOR)
    _add(software, "softwareName", NAME)
    _add(software, "softwareVersion", made_by.version)
    _add(software, "applicationDescription", SUMMARY)
    return processing


def _add(parent: Element, name: str, text: str) -> None:
    etree.SubElement(parent, f"{SPACE}{name}").text = text
