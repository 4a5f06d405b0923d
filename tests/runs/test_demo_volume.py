"""The demo volume through real htrflow: the text is right, the files are valid, a second run has nothing to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from actors.uploader import validate
from tests.volume import ROOT, Volume
from tools.demo.results import overall, page_cers
from tools.localstack import LocalStack
from tools.origin import running_origin

DEMO = ROOT / "tools" / "demo"
REAL = {"HF_HOME": str(ROOT / "tools" / "demo_models"), "HF_HUB_OFFLINE": "1", "PIXEL_ARENA_BYTES": "64Mi"}


@pytest.fixture
def real(tmp_path: Path, localstack: LocalStack, s3: Any, bucket: str) -> Iterator[Any]:
    with ExitStack() as stack:

        def make(folder: Path, **origin: Any) -> Volume:
            served = stack.enter_context(running_origin(folder, **origin))
            this = Volume(tmp_path, s3, bucket, localstack.url, served, htrflow=None, environ={**REAL, "YOLO_CONFIG_DIR": str(tmp_path)})
            this.pipeline.write_text((DEMO / "pipeline.yaml").read_text())
            stack.callback(this.close)
            return this

        yield make


def assert_valid(this: Volume) -> None:
    for kind in ("alto", "page"):
        for name in this.pages_stored(kind):
            root = etree.fromstring(this.get(f"{this.prefix}/{kind}/{name}.xml"))
            assert validate.first_error(root) is None, f"{kind} {name}"


def test_the_demo_volume_comes_out_with_its_text_and_a_second_run_has_nothing_to_do(real: Any):
    this = real(DEMO / "volume")
    truth = json.loads((DEMO / "volume" / "truth.json").read_text())
    ended = this.run(300)
    assert ended.code == 0, ended.log
    assert set(this.outcomes().values()) == {"ok"}
    assert overall(page_cers(this.s3, this.bucket, this.prefix, truth)) < 0.12
    assert_valid(this)
    for name, entry in zip(sorted(this.outcomes()), truth.values(), strict=True):
        alto = etree.fromstring(this.get(f"{this.prefix}/alto/{name}.xml"))
        size = alto.find(".//{*}Page")
        assert (size.get("WIDTH"), size.get("HEIGHT")) == (str(entry["width"]), str(entry["height"]))
        if not entry["regions"]:
            assert not [s.get("CONTENT") for s in alto.iterfind(".//{*}String") if s.get("CONTENT", "").strip()]
    asked = this.origin.asked()
    again = this.run(120)
    assert again.code == 0, again.log
    assert "(0 processed)" in again.last_line
    assert this.origin.asked() == asked
    assert " loaded " not in again.log


def test_real_page_scans_go_through_and_come_out_valid(real: Any, shared_dir: Path):
    this = real(shared_dir / "pages")
    ended = this.run(300)
    assert ended.code == 0, ended.log
    assert set(this.outcomes().values()) == {"ok"}
    assert_valid(this)
