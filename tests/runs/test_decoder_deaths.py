"""A page whose image kills the decoder, or hangs in it, costs itself and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable

from PIL import Image

from tests.doubles.broken_decoder.sitecustomize import HANGS, KILLS
from tests.gpu_process import ROOT
from tests.volume import Volume, steps

Make = Callable[..., Volume]
BROKEN = ROOT / "tests" / "doubles" / "broken_decoder"


def deadly(this: Volume, *numbers: int, width: int = KILLS) -> dict[str, str]:
    """Make these pages' images deadly; the variables of a run that meets them with such a decoder."""
    assert this.origin is not None
    for number in numbers:
        path = this.tmp / "images" / f"{number:04d}.png"
        Image.new("RGB", (width, 160), (230, 230, 215)).save(path)
    path = os.pathsep.join([str(BROKEN), this.environment()["PYTHONPATH"]])
    return {"IIIF_MANIFEST_URL": "", "IMAGES": " ".join(this.origin.image_urls), "PYTHONPATH": path}


def test_a_page_whose_decode_kills_the_fetcher_twice_alone_is_failed_and_the_others_come_out(volume: Make):
    this = volume(12)
    this.use(steps())
    ended = this.run(**deadly(this, 5))
    assert ended.code == 0, ended.log
    assert {name for name, status in this.outcomes().items() if status == "ok"} == {
        f"{n:04d}" for n in range(1, 13) if n != 5
    }
    reason = "its image ended the decoder 2 times while only this page was decoded"
    assert this.manifest["results"]["0005"]["error"] == reason
    assert f"page 0005 failed: {reason}" in ended.log
    assert "page 0005 was being decoded, it is decoded again alone" in ended.log
    assert "fetcher#4 started" in ended.log
    assert this.manifest["gpu_restarts"] == []
    assert this.left_in_workdir() == set()


def test_more_deadly_pages_than_the_fetcher_may_die_do_not_end_the_run(volume: Make):
    this = volume(8)
    this.use(steps())
    ended = this.run(**deadly(this, 2, 3, 7))
    assert ended.code == 0, ended.log
    failed = {name for name, status in this.outcomes().items() if status == "failed"}
    assert failed == {"0002", "0003", "0007"}
    assert this.manifest["pages_ok"] == 5
    assert "fetcher#7 started" in ended.log


def test_a_page_whose_decode_never_ends_is_failed_and_the_others_come_out(volume: Make):
    this = volume(8)
    this.use(steps())
    ended = this.start("batchpod.flow.intake.DECODE_S=2", **deadly(this, 4, width=HANGS)).end()
    assert ended.code == 0, ended.log
    failed = {name for name, status in this.outcomes().items() if status == "failed"}
    assert failed == {"0004"}, ended.log
    assert "page 0004 made no progress for 2 s in decode (PNG)" in ended.log
    assert "sitecustomize.py" in ended.log
