"""Models that raise, through a copy of the installed htrflow 0.2.6 with scripted models added."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator

import pytest

from actors.messages import Exported, Imported, Load, Loaded, PageFailed
from tests.gpu_process import ROOT, GpuProcess, gpu_process, picture, scripted, write_pipeline

_ADDED = """
_installed_models = all_models


def all_models():
    from htrflow.models import scripted

    return [*_installed_models(), scripted.ScriptedSegmenter, scripted.ScriptedReader]
"""


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuProcess]:
    spec = importlib.util.find_spec("htrflow")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("htrflow 0.2.6 is not installed")
    folder = tmp_path_factory.mktemp("collection")
    models = folder / "htrflow" / "models"
    shutil.copytree(spec.submodule_search_locations[0], folder / "htrflow")
    shutil.copy(ROOT / "tests" / "doubles" / "htrflow_collection" / "scripted.py", models)
    (models / "importer.py").write_text((models / "importer.py").read_text() + _ADDED)
    faults = {"0002": "raise:no such glyph", "0003": "raise_batch", "0004": "oom", "0005": "oom_batch"}
    pipeline = write_pipeline(
        folder / "pipeline.yaml",
        scripted("Segmentation", "ScriptedSegmenter", batch_size=1, label="1 region"),
        scripted("Segmentation", "ScriptedSegmenter", rows=3),
        scripted("TextRecognition", "ScriptedReader", faults=faults),
        {"step": "OrderLines"},
        {"step": "Binarization"},
    )
    with gpu_process(pipeline, folder / "out", folder) as process:
        assert process.take(Imported).api == "collection"
        process.send(Load(None, str(process.directory), smoke=True))
        assert process.take(Loaded).models[2] == "ScriptedReader test/scripted"
        yield process


def test_an_exception_inside_a_model_fails_its_page_alone(gpu: GpuProcess) -> None:
    assert isinstance(gpu.transcribe(1, picture(1)), Exported)
    assert gpu.transcribe(2, picture(2)) == PageFailed(2, "TextRecognition (scripted): ValueError: no such glyph")
    assert isinstance(gpu.transcribe(3, picture(3)), Exported)
    assert gpu.marks() == {}


def test_out_of_memory_is_tried_image_by_image_and_then_told_as_such(gpu: GpuProcess) -> None:
    outcome = gpu.transcribe(4, picture(4))
    assert isinstance(outcome, PageFailed)
    assert outcome.out_of_memory
    assert isinstance(gpu.transcribe(5, picture(5)), Exported)


def test_bad_labels_texts_and_numbers_are_exported_well(gpu: GpuProcess) -> None:
    gpu.transcribe(6, picture(6))
    alto, page, sidecar = gpu.exported(6)
    texts = json.loads(sidecar)["text"]
    assert len(texts) == 6
    assert all(text.startswith("ink ") and text.endswith(" <&> å") for text in texts)
    assert alto.count(" &lt;&amp;&gt; å") == page.count(" &lt;&amp;&gt; å") == 6
    assert "nan" not in alto + page


def test_what_image_steps_write_is_removed(gpu: GpuProcess) -> None:
    gpu.transcribe(7, picture(7))
    names = sorted(path.name for path in gpu.directory.rglob("0007*") if path.is_file())
    assert names == ["0007.alto.xml", "0007.page.xml", "0007.tree.json"]
