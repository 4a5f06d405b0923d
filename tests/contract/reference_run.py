"""What htrflow itself makes of a page in a file: run as a program, with no part of the gpu actor but the
tidying.

usage: reference_run.py collection|document PIPELINE IMAGE NAME OUT

Writes OUT/alto.xml and OUT/page.xml, and what the serializers make of the untidied tree as raw-alto.xml,
raw-page.xml.
"""

import copy
import sys
from pathlib import Path

import yaml


def collection(pipeline: str, image: str, name: str, out: Path) -> None:
    from htrflow.pipeline.pipeline import Pipeline
    from htrflow.serialization import AltoXML, PageXML
    from htrflow.volume.volume import Collection

    from actors.gpu.collection_tidy import settle_births, tidy
    from actors.gpu.exports import EscapingTemplate

    built = Pipeline.from_config(yaml.safe_load(Path(pipeline).read_text()))
    pages = Collection([image])
    page = pages[0]
    page.add_data(file_name=name, image_name=name)
    page._label = f"p{name}"
    born = 0
    for step in built.steps:
        pages = step.run(pages)
        if type(step).__name__ == "Segmentation":
            born += 1
            settle_births(page, born)
    steps = built.metadata()
    raw = copy.deepcopy(page)
    (out / "raw-alto.xml").write_text(AltoXML().serialize(raw, processing_steps=steps) or "")
    (out / "raw-page.xml").write_text(PageXML().serialize(raw) or "")
    tidy(page, page.width, page.height, born)
    alto, page_xml = AltoXML(), PageXML()
    alto.template, page_xml.template = EscapingTemplate(alto.template), EscapingTemplate(page_xml.template)
    (out / "alto.xml").write_text(alto.serialize(page, processing_steps=steps))
    (out / "page.xml").write_text(page_xml.serialize(page))


def document(pipeline: str, image: str, name: str, out: Path) -> None:
    from htrflow import progress
    from htrflow.document import Document
    from htrflow.pipeline.pipeline import Pipeline
    from htrflow.serialization import AltoXML, PageXML

    from actors.gpu.document_tidy import settle_births, tidy
    from actors.gpu.exports import EscapingTemplate

    built = Pipeline.from_config(pipeline)
    page = Document(image)
    page.image_name = name
    born = 0
    for step in built.steps:
        if hasattr(step, "_queue"):
            step._queue.patience = 1.0  # no batch leaves early on a slow machine
        progress.step(page, step)
        page = step.run(page)
        if type(step).__name__ == "Segmentation":
            born += 1
            settle_births(page, born)
    alto, page_xml = AltoXML(), PageXML()
    (out / "raw-alto.xml").write_text(alto.serialize(page))
    (out / "raw-page.xml").write_text(page_xml.serialize(page))
    tidy(page, page.image.width, page.image.height, born)
    alto.template, page_xml.template = EscapingTemplate(alto.template), EscapingTemplate(page_xml.template)
    (out / "alto.xml").write_text(alto.serialize(page))
    (out / "page.xml").write_text(page_xml.serialize(page))


if __name__ == "__main__":
    {"collection": collection, "document": document}[sys.argv[1]](*sys.argv[2:5], Path(sys.argv[5]))
