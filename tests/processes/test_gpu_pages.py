"""Pages through a real gpu process, with the stand-in for htrflow's document API (or a checkout of it:
HTRFLOW_SRC)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from actors.messages import Exported, Imported, Load, LoadFailed, LogLevel, PageFailed, PageStarted, Stop
from tests.gpu_process import (
    ARENA_BYTES,
    GpuProcess,
    blank,
    document_htrflow,
    gpu_process,
    picture,
    scripted,
    three_steps,
    write_pipeline,
)
from tests.small_disk import small_disk


@pytest.fixture(scope="module")
def htrflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return document_htrflow(tmp_path_factory.mktemp("htrflow"))


@pytest.fixture(scope="module")
def gpu(htrflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuProcess]:
    """One process for the tests that leave it as it was; its trace is `trace` beside its directory."""
    folder = tmp_path_factory.mktemp("gpu")
    trace = {"trace": str(folder / "trace")}
    words = {**trace, "faults": {"0009": "illegal", "0010": "nan", "0011": "empty", "0012": "say:a\tb"}}
    lines = {**trace, "faults": {"0007": "outside", "0008": "degenerate", "0013": "nothing"}}
    pipeline = write_pipeline(folder / "pipeline.yaml", *three_steps(trace, lines, words))
    with gpu_process(pipeline, folder / "out", htrflow) as process:
        process.load(smoke=True)
        yield process


@pytest.fixture
def little_room(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for 64 KiB."""
    folder = tmp_path / "small"
    with small_disk(folder, "size=64k"):
        yield folder


def steady(text: str) -> str:
    """Without what differs between two runs of one page."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00)?", "then", text)


def tree(gpu: GpuProcess, page: int) -> dict[str, Any]:
    return json.loads(gpu.exported(page)[2])  # type: ignore[no-any-return]


def trace(gpu: GpuProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (gpu.directory.parent / "trace").read_text().splitlines()]


def test_a_page_comes_out_as_alto_page_and_sidecar(gpu: GpuProcess) -> None:
    outcome = gpu.transcribe(1, picture(1))
    alto, page, _ = gpu.exported(1)
    sidecar = tree(gpu, 1)
    assert isinstance(outcome, Exported)
    assert outcome.lines == len(sidecar["text"]) == 6
    assert outcome.size_bytes == sum(path.stat().st_size for path in gpu.directory.glob("0001.*"))
    for text in sidecar["text"]:
        assert f'CONTENT="{text}"' in alto
        assert f"<Unicode>{text}</Unicode>" in page
    assert alto.count("<processingStepDescription>") == 3
    assert (sidecar["width"], sidecar["height"], sidecar["segmented"], sidecar["blank"]) == (
        160,
        120,
        True,
        False,
    )


def test_the_sidecar_has_the_absolute_places_of_the_page_file(gpu: GpuProcess) -> None:
    gpu.transcribe(2, picture(2))
    points = re.findall(r'<TextLine .*?<Coords points="([^"]*)"', gpu.exported(2)[1], re.DOTALL)
    lines = [line for region in tree(gpu, 2)["regions"] for line in region["lines"]]
    assert [" ".join(f"{x},{y}" for x, y in line["polygon"]) for line in lines] == points


def test_a_blank_page_has_both_files_and_the_text_made_up_for_it_is_dropped(gpu: GpuProcess) -> None:
    assert gpu.transcribe(3, blank()) == gpu_outcome_without_lines(gpu, 3)
    alto, page, _ = gpu.exported(3)
    assert "TextLine" not in alto + page
    assert 'imageWidth="160" imageHeight="120"' in page
    assert tree(gpu, 3) == {
        "width": 160,
        "height": 120,
        "segmented": True,
        "blank": True,
        "regions": [],
        "text": [],
    }
    said = "page 0003: nothing was segmented; the text read from the whole page is dropped"
    gpu.until(lambda: said in gpu.log, said)


def gpu_outcome_without_lines(gpu: GpuProcess, page: int) -> Exported:
    size = sum(path.stat().st_size for path in gpu.directory.glob(f"{page:04d}.*"))
    return Exported(page, size, 0, pytest.approx(5, abs=5))  # type: ignore[arg-type]


def test_what_is_read_from_a_region_without_lines_is_made_up_too(gpu: GpuProcess) -> None:
    gpu.transcribe(13, picture(13))
    assert tree(gpu, 13)["text"] == []
    assert [region["lines"] for region in tree(gpu, 13)["regions"]] == [[], []]
    assert "Unicode" not in gpu.exported(13)[1]


def test_a_page_gives_the_same_alone_and_beside_others_and_no_batch_mixes_pages(gpu: GpuProcess) -> None:
    alone = []
    for page in range(20, 26):
        gpu.transcribe(page, picture(page))
        alone.append(gpu.exported(page))
    for page in range(20, 26, 2):
        gpu.show(page, picture(page))
        gpu.show(page + 1, picture(page + 1))
        gpu.outcome(page), gpu.outcome(page + 1)
    for page, before in zip(range(20, 26), alone, strict=True):
        assert [steady(str(part)) for part in gpu.exported(page)] == [steady(str(part)) for part in before]
    batches = [(line["page"], line["images"]) for line in trace(gpu) if line["model"] == "test/reader"]
    for page in range(20, 26):
        assert [images for of, images in batches if of == f"{page:04d}"] == [4, 2, 4, 2]


def test_a_model_gets_the_pixels_of_the_block_itself_at_their_address_in_the_arena(gpu: GpuProcess) -> None:
    gpu.show(40, picture(40))
    gpu.show(41, picture(41))
    gpu.outcome(40), gpu.outcome(41)
    maps = Path(f"/proc/{gpu.incarnation.pid}/maps").read_text()
    arena_at = next(int(line.partition("-")[0], 16) for line in maps.splitlines() if "memfd:pixels" in line)
    seen = {line["page"]: line["address"] - arena_at for line in trace(gpu) if line["model"] == "test/regions"}
    assert seen["0041"] - seen["0040"] == picture(40).nbytes
    assert 0 <= seen["0040"] < ARENA_BYTES - 2 * picture(40).nbytes


def test_a_block_may_be_overwritten_as_soon_as_the_page_is_out(gpu: GpuProcess) -> None:
    gpu.transcribe(30, picture(30))
    before = steady(gpu.exported(30)[0])
    gpu.overwrite(7)
    gpu.transcribe(31, picture(31, 90, 70))
    assert 'WIDTH="90" HEIGHT="70"' in gpu.exported(31)[0]
    gpu.transcribe(30, picture(30))
    assert steady(gpu.exported(30)[0]) == before


@pytest.mark.parametrize("page", [7, 8])
def test_polygons_outside_the_page_or_without_extent_become_ones_on_it(gpu: GpuProcess, page: int) -> None:
    assert isinstance(gpu.transcribe(page, picture(page)), Exported)
    for points in re.findall(r'points="([^"]*)"', gpu.exported(page)[1]):
        corners = [tuple(map(int, point.split(","))) for point in points.split()]
        assert all(0 <= x <= 160 and 0 <= y <= 120 for x, y in corners)
        assert len(set(corners)) >= 3


def test_text_that_xml_forbids_is_cleaned_and_escaped_once(gpu: GpuProcess) -> None:
    assert isinstance(gpu.transcribe(9, picture(9)), Exported)
    alto, page, _ = gpu.exported(9)
    read = tree(gpu, 9)["text"]
    contents = etree.fromstring(alto.encode()).xpath("//@CONTENT")
    assert read == contents == [e.text for e in etree.fromstring(page.encode()).iter("{*}Unicode")]
    assert all(text.endswith(" <&\"'>") for text in read)


def test_a_confidence_that_is_no_number_and_an_empty_text_are_exported(gpu: GpuProcess) -> None:
    assert isinstance(gpu.transcribe(10, picture(10)), Exported)
    assert "nan" not in gpu.exported(10)[1]
    outcome = gpu.transcribe(11, picture(11))
    assert isinstance(outcome, Exported)
    assert outcome.lines == 0
    assert 'CONTENT=""' in gpu.exported(11)[0]


def test_htrflows_own_display_is_silent(gpu: GpuProcess) -> None:
    gpu.transcribe(1, picture(1))
    assert "Done" not in gpu.log
    assert "done" not in gpu.log


def test_the_log_level_can_be_changed(gpu: GpuProcess) -> None:
    gpu.send(LogLevel("nonsense"))
    gpu.until(lambda: "no such log level" in gpu.log, "the complaint")


def test_words_are_exported_in_their_lines_place(htrflow: Path, tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "pipeline.yaml", *three_steps(text={"words": True}))
    with gpu_process(pipeline, tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.transcribe(1, picture(1))
        line = tree(gpu, 1)["regions"][1]["lines"][2]
        assert " ".join(word["text"] for word in line["words"]) == line["text"]
        (left, top), _, (right, bottom), _ = line["polygon"]
        for word in line["words"]:
            assert all(left <= x <= right and top <= y <= bottom for x, y in word["polygon"])
        assert gpu.exported(1)[0].count("<String") == sum(
            len(one["words"]) for region in tree(gpu, 1)["regions"] for one in region["lines"]
        )


def test_regions_within_regions_are_hoisted_and_lines_without_a_region_get_the_page(
    htrflow: Path, tmp_path: Path
) -> None:
    three, lines, text, order = three_steps({"faults": {"0002": "nothing"}})
    columns = scripted("Segmentation", "ScriptedSegmenter", boxes=[[0.0, 0.1, 0.4, 0.9], [0.5, 0.1, 1.0, 0.9]])
    pipeline = write_pipeline(tmp_path / "pipeline.yaml", three, columns, lines, text, order)
    with gpu_process(pipeline, tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.transcribe(1, picture(1))
        assert [len(region["lines"]) for region in tree(gpu, 1)["regions"]] == [3, 3, 3, 3]
        assert gpu.exported(1)[0].count("<TextLine ") == 12
    two = write_pipeline(tmp_path / "two.yaml", three, lines, text)
    with gpu_process(two, tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.transcribe(2, picture(2))
        assert [len(region["lines"]) for region in tree(gpu, 2)["regions"]] == [3]
        assert tree(gpu, 2)["regions"][0]["polygon"] == [[0, 0], [160, 0], [160, 120], [0, 120]]
        assert gpu.exported(2)[0].count("<TextLine ") == 3


def test_lines_of_a_pipeline_without_regions_are_named_and_not_exported(htrflow: Path, tmp_path: Path) -> None:
    _, lines, text, _ = three_steps()
    with gpu_process(write_pipeline(tmp_path / "p.yaml", lines, text), tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.transcribe(1, picture(1))
        assert len(tree(gpu, 1)["text"]) == 3
        assert "TextLine" not in gpu.exported(1)[0]


def test_an_image_step_keeps_the_pages_name_and_leaves_no_file(htrflow: Path, tmp_path: Path) -> None:
    step = {"step": "Binarization" if "HTRFLOW_SRC" in os.environ else "Invert"}
    with gpu_process(write_pipeline(tmp_path / "p.yaml", step, *three_steps()), tmp_path / "out", htrflow) as gpu:
        gpu.load()
        outcome = gpu.transcribe(4, picture(4))
        assert isinstance(outcome, Exported)
        assert outcome.lines == 6
        assert 'imageFilename="0004"' in gpu.exported(4)[1]
        assert sorted(path.name for path in tmp_path.rglob("0004*")) == [
            "0004.alto.xml",
            "0004.page.xml",
            "0004.tree.json",
        ]


def test_a_page_in_hand_is_finished_before_a_stop(htrflow: Path, tmp_path: Path) -> None:
    pipeline = write_pipeline(tmp_path / "p.yaml", *three_steps({"seconds_per_batch": 0.3}))
    with gpu_process(pipeline, tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.show(1, picture(1))
        gpu.take(PageStarted)
        gpu.send(Stop(60.0))
        exit_ = gpu.died()
        assert (exit_.code, exit_.signal_name) == (0, "")
        assert isinstance(gpu.outcome(1), Exported)


def test_a_standby_imports_and_waits_and_its_device_is_set_before_its_models_load(
    htrflow: Path, tmp_path: Path
) -> None:
    pipeline = write_pipeline(tmp_path / "p.yaml", *three_steps({"trace": str(tmp_path / "trace")}))
    with gpu_process(pipeline, tmp_path / "out", htrflow) as gpu:
        imported = gpu.take(Imported)
        assert imported.api == "document"
        assert gpu.marks() == {}
        gpu.send(Load("7", str(gpu.directory), False))
        gpu.until(lambda: gpu.messages, "Loaded")
        gpu.transcribe(1, picture(1))
        assert json.loads((tmp_path / "trace").read_text().splitlines()[0])["device"] == "7"


def test_relative_paths_mean_the_directory_that_the_run_was_started_in(
    htrflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "0001").mkdir(parents=True)
    (tmp_path / "models" / "0001" / "lines.pt").touch()
    write_pipeline(tmp_path / "pipeline.yaml", *three_steps(lines={"model": "models/0001/lines.pt"}))
    monkeypatch.chdir(tmp_path)
    with gpu_process(Path("pipeline.yaml"), tmp_path / "out", htrflow) as gpu:
        assert gpu.load().models[1] == "ScriptedSegmenter models/0001/lines.pt"
        assert (gpu.directory / "models/0001/lines.pt").exists()
        gpu.transcribe(1, picture(1))
        assert "models/0001/lines.pt" in gpu.exported(1)[0]
        assert (tmp_path / "models/0001/lines.pt").exists()


def test_a_load_for_which_the_workdir_has_no_room_says_so(
    htrflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.pt").touch()
    write_pipeline(tmp_path / "pipeline.yaml", *three_steps(lines={"model": "lines.pt"}))
    monkeypatch.chdir(tmp_path)
    with (
        small_disk(tmp_path / "small", "nr_inodes=2"),
        gpu_process(Path("pipeline.yaml"), tmp_path / "small" / "out", htrflow) as gpu,
    ):
        gpu.take(Imported)
        gpu.send(Load(None, str(gpu.directory), False))
        failed = gpu.take(LoadFailed)
    assert failed.workdir_full
    assert not failed.permanent
    assert "No space left on device" in failed.error


def test_a_full_workdir_fails_the_page_as_such_and_leaves_no_part_of_it(
    htrflow: Path, tmp_path: Path, little_room: Path
) -> None:
    with gpu_process(write_pipeline(tmp_path / "p.yaml", *three_steps()), little_room / "out", htrflow) as gpu:
        gpu.load()
        (little_room / "filler").write_bytes(bytes(60 * 1024))
        outcome = gpu.transcribe(1, picture(1))
        assert isinstance(outcome, PageFailed)
        assert outcome.workdir_full
        assert "no room" in outcome.reason
        assert list(gpu.directory.glob("0001*")) == []
        (little_room / "filler").unlink()
        assert isinstance(gpu.transcribe(2, picture(2)), Exported)
