"""What the text of a pipeline file shows by itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from actors.gpu.pipeline_file import (
    MAX_BYTES,
    PipelineError,
    check_pipeline,
    read_steps,
    read_text,
    recipe_digest,
    relative_paths,
)

COMMIT = "0a5c1e27b94d83f6602de71c4b8f95ad3e170c62"
YOLO = f"""
steps:
- step: Segmentation
  settings:
    model: YOLO
    model_settings: {{model: demo/lines, revision: {COMMIT}}}
    generation_settings: {{batch_size: 2}}
"""


def test_a_sound_pipeline_has_no_problems() -> None:
    assert check_pipeline(YOLO) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps: [", "is not YAML"),
        ("", "no list of steps"),
        ("steps: {}", "no list of steps"),
        ("- step: OrderLines", "no list of steps"),
        ("steps: []", "no list of steps"),
        ("steps: [OrderLines]", "step 1 has no name"),
        ("steps: [{step: OrderLines, settings: 3}]", "step 1 has no name"),
        ("steps: [{step: OrderLines}, {step: export, settings: {dest: x, format: alto}}]", "step 2 (export)"),
        ("steps: [{step: Segmentation, settings: {model_settings: {model: a/b}}}]", "names no model class"),
        ("steps: [{step: Segmentation, settings: {model: YOLO, model_settings: 1}}]", "is no mapping"),
        ("steps: [{step: OrderLines, settings: {model_settings: [1]}}]", "is no mapping"),
        (YOLO.replace("demo/lines", "/" + "x" * 5000), "does not exist"),
        (YOLO.replace("model: YOLO", "model: YOLO\n    revision: main"), "overrides the revision"),
        (YOLO.replace("demo/lines", "/nowhere/model.pt"), "/nowhere/model.pt does not exist"),
        (YOLO.replace("demo/lines", "models/lines.pt"), "models/lines.pt does not exist"),
        (YOLO.replace("demo/lines", "./lines"), "./lines does not exist"),
        (YOLO.replace("batch_size: 2", "compile: true"), "`compile` asks for compilation"),
        (YOLO.replace("batch_size: 2", "compile: reduce-overhead"), "`compile` asks for compilation"),
        (YOLO.replace("batch_size: 2", "cache_implementation: static"), "cache_implementation: static"),
        (YOLO.replace("batch_size: 2", "compile_config: {mode: default}"), "`compile_config` asks"),
    ],
)
def test_a_mistake_is_said_in_a_sentence(text: str, said: str) -> None:
    problems = check_pipeline(text)
    assert len(problems) == 1
    assert said in problems[0]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{held}'] * 10)}]\n"
    for held, name in zip("abcdefgh", "bcdefghi", strict=True)
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (YOLO + "x: !!int ''", "not what its tag or its form says"),
        (YOLO + "x: !!timestamp foo", "not what its tag or its form says"),
        (YOLO + "x: !!bool foo", "not what its tag or its form says"),
        (YOLO + "x: 2020-13-45", "not what its tag or its form says"),
        (YOLO + "x: *nothing", "undefined alias"),
        (YOLO + "x: &a [1]\ny: &a [*a]", "is not YAML|holds itself"),
        ("steps: " + "[" * 5000 + "]" * 5000, "nest"),
        ("steps: " + "[" * 101 + "]" * 101, "nested more than 100 deep"),
        ("steps: " + "{a: " * 100_000, "nested more than 100 deep"),
        (YOLO.replace("steps:", "steps: &a").replace("batch_size: 2", "z: *a"), "holds itself: `\\*a` lies in `&a`"),
        (BOMB + YOLO.replace("batch_size: 2", "z: *i"), "more than 100000 values"),
        ("steps: [" + "1," * 200_000 + "]", "more than 100000 values"),
        (YOLO + "x: 1" + ":5" * 400_000, "a value of more than 65536 characters"),
        (YOLO + "# x y z\n" * 1_300_000, "larger than 1048576 bytes"),
    ],
)
def test_what_cannot_be_read_or_walked_is_refused_in_a_sentence_and_has_no_digest(text: str, said: str) -> None:
    (problem,) = check_pipeline(text)
    assert re.search(said, problem)
    with pytest.raises(PipelineError, match=said):
        recipe_digest(text)


def test_an_alias_that_holds_little_is_fine() -> None:
    text = YOLO.replace("model_settings: {", "model_settings: &model {") + "- step: TextRecognition\n  settings:\n"
    text += "    model: TrOCR\n    model_settings: *model\n"
    assert check_pipeline(text) == []
    assert read_steps(text)[1]["settings"]["model_settings"]["model"] == "demo/lines"


@pytest.mark.parametrize("data", [bytes(range(256)), YOLO.encode("utf-16"), "é".encode("latin-1")])
def test_a_file_that_is_not_utf_8_is_said_to_be_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "pipeline.yaml").write_bytes(data)
    with pytest.raises(PipelineError, match="is not UTF-8 text"):
        read_text(tmp_path / "pipeline.yaml")


def test_of_a_file_that_is_too_large_no_more_than_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(YOLO + "#" * (MAX_BYTES - len(YOLO)))
    assert read_steps(read_text(tmp_path / "pipeline.yaml"))
    with pytest.raises(PipelineError, match="larger than"):
        read_text(Path("/dev/zero"))


def test_all_mistakes_are_said_at_once() -> None:
    text = yaml.safe_dump({"steps": [{"step": "Export"}, *yaml.safe_load(YOLO)["steps"], {"step": "Export"}]})
    assert [problem[:6] for problem in check_pipeline(text.replace("demo/lines", "/gone.pt"))] == [
        "step 1",
        "step 2",
        "step 3",
    ]


def test_a_revision_inside_model_kwargs_is_lost_to_model_kwargs_beside() -> None:
    steps = yaml.safe_load(YOLO)
    settings = steps["steps"][0]["settings"]
    settings["model_settings"] = {"model": "demo/trocr", "model_kwargs": {"revision": COMMIT}}
    settings["model_kwargs"] = {"low_cpu_mem_usage": True}
    assert "`model_kwargs` beside" in check_pipeline(yaml.safe_dump(steps))[0]


@pytest.mark.parametrize("setting", ["compile: false", "cache_implementation: dynamic", "conf: 0.4"])
def test_settings_that_compile_nothing_are_fine(setting: str) -> None:
    assert check_pipeline(YOLO.replace("batch_size: 2", setting)) == []


def test_a_local_model_that_exists_is_fine(tmp_path: Path) -> None:
    (tmp_path / "lines.pt").touch()
    assert check_pipeline(YOLO.replace("demo/lines", "./lines.pt"), tmp_path) == []
    assert check_pipeline(YOLO.replace("demo/lines", str(tmp_path / "lines.pt"))) == []


@pytest.mark.parametrize("path", ["./lines.pt", "models/lines", "models/deep/lines.pt"])
def test_relative_paths_that_exist_are_found(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    assert relative_paths(read_steps(YOLO.replace("demo/lines", path)), tmp_path) == [Path(path)]
    assert relative_paths(read_steps(YOLO), tmp_path) == []


def test_a_path_that_leaves_the_current_directory_must_be_absolute(tmp_path: Path) -> None:
    (tmp_path / "lines.pt").touch()
    (tmp_path / "here").mkdir()
    (said,) = check_pipeline(YOLO.replace("demo/lines", "../lines.pt"), tmp_path / "here")
    assert "absolute path" in said


def test_the_digest_is_that_of_the_steps_and_not_of_their_writing() -> None:
    steps = yaml.safe_load(YOLO)
    written = "# a comment\n" + yaml.safe_dump({"name": "mine", **steps}, sort_keys=True, default_flow_style=True)
    assert recipe_digest(written) == recipe_digest(YOLO)
    assert recipe_digest(YOLO.replace("batch_size: 2", "batch_size: 3")) != recipe_digest(YOLO)
    assert len(recipe_digest(YOLO)) == 64


def test_any_yaml_value_has_a_digest() -> None:
    text = "steps: [{step: A, settings: {1: 2020-01-01, x: .nan, y: [.inf, null, é]}}]"
    assert recipe_digest(text) == recipe_digest(text)


def test_a_number_too_long_to_be_written_has_no_digest() -> None:
    with pytest.raises(PipelineError, match="cannot be written down"):
        recipe_digest(f"steps: [{{step: A, settings: {{x: 0x{'f' * 5000}}}}}]")


def test_there_is_no_digest_without_steps() -> None:
    with pytest.raises(PipelineError, match="no list of steps"):
        recipe_digest("a: 1")


def test_reading_a_pipeline_file_imports_nothing_heavy() -> None:
    code = "import sys, actors.gpu.pipeline_file\nprint({'torch', 'numpy', 'PIL', 'htrflow'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
