"""The demo's real models through the installed htrflow 0.2.6, and through a checkout of main with
HTRFLOW_SRC.

A page in the arena gives byte for byte what the same page in a lossless file gives.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from PIL import Image

from actors.messages import Exported, Imported, Load, Loaded
from tests.gpu_process import ROOT, GpuProcess, Rgb, blank, document_htrflow, environment, gpu_process

PIPELINE = ROOT / "tools" / "demo" / "pipeline.yaml"
VOLUME = ROOT / "tools" / "demo" / "volume"
TRUTH = json.loads((VOLUME / "truth.json").read_text())
MODELS = {"HF_HOME": str(ROOT / "tools" / "demo_models"), "HF_HUB_OFFLINE": "1"}
PAGE = 9
"""A lossless page of the demo's volume."""


@dataclass(frozen=True)
class Real:
    api: str
    gpu: GpuProcess
    loaded: Loaded
    folder: Path


@pytest.fixture(scope="module", params=["collection", "document"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A gpu process with the demo's models, and beside it what htrflow itself makes of page 9."""
    pytest.importorskip("htrflow.volume.node", reason="htrflow 0.2.6 is not installed")
    folder = tmp_path_factory.mktemp("real")
    htrflow = None
    if request.param == "document":
        if "HTRFLOW_SRC" not in os.environ:
            pytest.skip("name a checkout of htrflow main with HTRFLOW_SRC to run this")
        htrflow = document_htrflow(folder / "package")
    image = folder / "page"
    Image.fromarray(pixels()).save(image, "PNG")
    path = os.pathsep.join(str(entry) for entry in (htrflow, ROOT) if entry)
    program = [sys.executable, ROOT / "tests/contract/reference_run.py", request.param, PIPELINE, image, f"{PAGE:04d}"]
    reference = subprocess.Popen(
        [*program, folder], env=environment(PYTHONPATH=path, **MODELS), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with gpu_process(PIPELINE, folder / "out", htrflow, environment(**MODELS)) as gpu:
        assert gpu.take(Imported).api == request.param
        gpu.send(Load(None, str(gpu.directory), smoke=True))
        loaded = gpu.take(Loaded)
        said = reference.communicate(timeout=300)[0]
        assert reference.returncode == 0, said.decode()
        yield Real(request.param, gpu, loaded, folder)


def pixels() -> Rgb:
    return np.asarray(Image.open(VOLUME / f"{PAGE:04d}.png").convert("RGB"))


def steady(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00)?", "then", text)


def test_the_models_are_loaded_and_named(real: Real) -> None:
    assert real.loaded.models == ("YOLO demo/regions", "YOLO demo/lines", "TrOCR demo/trocr")
    assert real.loaded.capacity == (1 if real.api == "collection" else 2)


def test_a_page_in_the_arena_gives_byte_for_byte_what_its_file_gives(real: Real) -> None:
    assert isinstance(real.gpu.transcribe(PAGE, pixels()), Exported)
    alto, page, _ = real.gpu.exported(PAGE)
    assert steady(alto) == steady((real.folder / "alto.xml").read_text())
    assert steady(page) == steady((real.folder / "page.xml").read_text())


def test_tidying_changes_no_text_that_htrflow_exports_by_itself(real: Real) -> None:
    real.gpu.transcribe(PAGE, pixels())
    alto, page, sidecar = real.gpu.exported(PAGE)
    raw_alto, raw_page = ((real.folder / f"raw-{kind}.xml").read_bytes() for kind in ("alto", "page"))
    texts = etree.fromstring(alto.encode()).xpath("//@CONTENT")
    assert texts == etree.fromstring(raw_alto).xpath("//@CONTENT")
    assert texts == [e.text for e in etree.fromstring(raw_page).iter("{*}Unicode")] == json.loads(sidecar)["text"]
    if real.api == "document":
        canonical = [
            etree.tostring(etree.fromstring(steady(raw.decode()).encode()), method="c14n")
            for raw in (raw_alto, raw_page)
        ]
        mine = [etree.tostring(etree.fromstring(steady(text).encode()), method="c14n") for text in (alto, page)]
        assert mine == canonical


def test_what_is_read_resembles_what_is_written_there(real: Real) -> None:
    real.gpu.transcribe(PAGE, pixels())
    read = " ".join(json.loads(real.gpu.exported(PAGE)[2])["text"]).split()
    written = re.findall(r"\w+", json.dumps(TRUTH, ensure_ascii=False))
    assert len(set(read) & set(written)) > len(read) / 2


def test_a_blank_page_has_both_files(real: Real) -> None:
    assert isinstance(real.gpu.transcribe(20, blank(800, 600)), Exported)
    alto, page, sidecar = real.gpu.exported(20)
    assert 'WIDTH="800" HEIGHT="600"' in alto
    assert 'imageWidth="800" imageHeight="600"' in page
    assert json.loads(sidecar)["blank"]


def test_a_block_is_free_once_its_page_is_out(real: Real) -> None:
    real.gpu.transcribe(PAGE, pixels())
    before = steady(real.gpu.exported(PAGE)[0])
    real.gpu.overwrite(9)
    real.gpu.transcribe(21, blank(640, 480))
    real.gpu.transcribe(PAGE, pixels())
    assert steady(real.gpu.exported(PAGE)[0]) == before


def test_the_log_holds_no_progress_bars_and_no_tracebacks(real: Real) -> None:
    real.gpu.transcribe(PAGE, pixels())
    assert "it/s" not in real.gpu.log
    assert "Traceback" not in real.gpu.log
    assert real.gpu.marks() == {}
