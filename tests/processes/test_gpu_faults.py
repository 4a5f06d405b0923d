"""What a model can do to the gpu process, and what the supervisor gets to know of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.messages import Dying, Exported, Imported, Load, LoadFailed, PageFailed, PageStarted
from supervisor.process import thread_stack
from tests.gpu_process import (
    DOUBLE,
    GpuProcess,
    document_htrflow,
    gpu_process,
    picture,
    scripted,
    three_steps,
    write_pipeline,
)


@pytest.fixture(scope="module")
def htrflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return document_htrflow(tmp_path_factory.mktemp("htrflow"))


def faulty(tmp_path: Path, text: dict[str, str], lines: dict[str, str] | None = None) -> Path:
    """A pipeline whose reader (and line finder) has those faults."""
    more = {"trace": str(tmp_path / "trace"), "state": str(tmp_path)}
    return write_pipeline(
        tmp_path / "pipeline.yaml", *three_steps(more, {**more, "faults": lines or {}}, {**more, "faults": text})
    )


def test_an_exception_inside_a_model_fails_its_page_alone_and_costs_no_load(tmp_path: Path, htrflow: Path) -> None:
    faults = {"0002": "raise:no such glyph", "0004": "raise_batch", "0005": "short"}
    with gpu_process(faulty(tmp_path, faults), tmp_path / "out", htrflow) as gpu:
        gpu.load()
        for page in range(1, 7):
            gpu.show(page, picture(page))
            if page % 2 == 0:
                outcomes = {p: gpu.outcome(p) for p in (page - 1, page)}
                failed = {p for p, outcome in outcomes.items() if isinstance(outcome, PageFailed)}
                assert failed == {2, 5} & set(outcomes)
                if page == 2:
                    said = outcomes[2]
        assert said == PageFailed(2, "TextRecognition (reader): ValueError: no such glyph")
        assert "raised on a batch of 4" in gpu.log
        assert "Traceback" in gpu.log
        lines = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
        assert {line["pid"] for line in lines} == {gpu.incarnation.pid}
        assert gpu.marks() == {}


def test_out_of_memory_is_tried_image_by_image_and_then_told_as_such(tmp_path: Path, htrflow: Path) -> None:
    with gpu_process(faulty(tmp_path, {"0001": "oom_batch", "0002": "oom"}), tmp_path / "out", htrflow) as gpu:
        gpu.load()
        assert isinstance(gpu.transcribe(1, picture(1)), Exported)
        outcome = gpu.transcribe(2, picture(2))
        assert isinstance(outcome, PageFailed)
        assert outcome.out_of_memory
        assert "OutOfMemoryError" in outcome.reason
        assert isinstance(gpu.transcribe(3, picture(3)), Exported)


def test_a_cuda_error_ends_the_process_after_saying_so(tmp_path: Path, htrflow: Path) -> None:
    with gpu_process(faulty(tmp_path, {"0002": "cuda"}), tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.transcribe(1, picture(1))
        gpu.show(2, picture(2))
        dying = gpu.take(Dying)
        assert dying.device_error
        assert dying.reason.startswith("TextRecognition (reader): RuntimeError: CUDA error: an illegal memory")
        assert gpu.died().code == 1


def test_a_dead_worker_thread_is_named_and_ends_the_process(tmp_path: Path, htrflow: Path) -> None:
    with gpu_process(faulty(tmp_path, {"0001": "system_exit"}), tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.show(1, picture(1))
        dying = gpu.take(Dying)
        assert not dying.device_error
        assert "TextRecognition (reader)" in dying.reason
        assert gpu.died().code == 1


@pytest.mark.parametrize(
    ("fault", "code", "signal_name"), [("segv", None, "SIGSEGV"), ("kill", None, "SIGKILL"), ("exit:5", 5, "")]
)
def test_a_death_leaves_what_was_said_and_whose_page_was_inside(
    tmp_path: Path, htrflow: Path, fault: str, code: int | None, signal_name: str
) -> None:
    with gpu_process(faulty(tmp_path, {"0002": fault}), tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.show(1, picture(1))
        gpu.show(2, picture(2))
        exit_ = gpu.died()
        assert (exit_.code, exit_.signal_name) == (code, signal_name)
        assert PageStarted(2) in gpu.messages
        guilty = gpu.marks()[2]
        assert (guilty.inside, guilty.step, guilty.detail) == (True, "TextRecognition", "reader 1/2")


@pytest.mark.parametrize("fault", ["hang", "hang_gil"])
def test_a_hang_shows_in_the_marks_and_in_the_stack_of_the_thread_they_name(
    tmp_path: Path, htrflow: Path, fault: str
) -> None:
    with gpu_process(faulty(tmp_path, {"0001": fault}), tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.show(1, picture(1))
        gpu.take(PageStarted)
        guilty = gpu.until(lambda: inside(gpu, 1, "reader 1/2"), "page 1 inside the reader")
        if fault == "hang":
            gpu.show(2, picture(2))
            gpu.until(lambda: waiting(gpu, 2, "reader waited for"), "page 2 waiting for the reader")

        def seen() -> bool:
            gpu.incarnation.request_dump()
            return "_hang" in gpu.until(lambda: thread_stack(gpu.incarnation.stacks(), guilty.thread), "a stack")

        gpu.until(seen, "the hang in the stack of the thread that the mark names")
        assert gpu.marks()[1].counter == guilty.counter
        assert gpu.marks()[1].inside


def inside(gpu: GpuProcess, page: int, detail: str) -> object:
    mark = gpu.marks().get(page)
    return mark if mark is not None and mark.inside and mark.detail == detail else None


def waiting(gpu: GpuProcess, page: int, detail: str) -> bool:
    mark = gpu.marks().get(page)
    return mark is not None and not mark.inside and mark.detail == detail


def test_a_step_that_raises_fails_its_page_and_is_named(tmp_path: Path, htrflow: Path) -> None:
    pipeline = write_pipeline(tmp_path / "p.yaml", *three_steps()[:2], {"step": "Break"})
    with gpu_process(pipeline, tmp_path / "out", htrflow) as gpu:
        gpu.load()
        outcome = gpu.transcribe(1, picture(1))
        assert isinstance(outcome, PageFailed)
        assert outcome.reason.startswith("Break: Exception")


def change(pipeline: Path, text: str) -> Path:
    pipeline.write_text(text)
    return pipeline


LOADS: list[tuple[str, Callable[[Path], Path], bool, bool, str]] = [
    ("no yaml", lambda p: change(p, "steps: ["), True, False, "is not YAML"),
    ("export", lambda p: write_pipeline(p, {"step": "Export"}), True, False, "remove the step"),
    ("unknown step", lambda p: write_pipeline(p, {"step": "Segmentaton"}), True, False, "no step Segmentaton"),
    ("unknown model", lambda p: write_pipeline(p, scripted("Segmentation", "Yolo99")), True, False, "yolo99"),
    (
        "unknown setting",
        lambda p: write_pipeline(p, scripted("Segmentation", "ScriptedSegmenter", colour=1)),
        True,
        False,
        "unexpected keyword argument 'colour'",
    ),
    (
        "os error",
        lambda p: write_pipeline(p, scripted("Segmentation", "ScriptedSegmenter", load_error="OSError: no file")),
        False,
        False,
        "OSError: no file",
    ),
    (
        "meta tensor",
        lambda p: write_pipeline(
            p,
            scripted(
                "Segmentation",
                "ScriptedSegmenter",
                load_error="NotImplementedError: Cannot copy out of meta tensor; no data!",
            ),
        ),
        True,
        False,
        "transformers",
    ),
    (
        "smoke",
        lambda p: write_pipeline(
            p, scripted("Segmentation", "ScriptedSegmenter", faults={"smoke": "raise:only in batches"})
        ),
        True,
        True,
        "does not run: ValueError: only in batches",
    ),
    (
        "device",
        lambda p: write_pipeline(p, scripted("Segmentation", "ScriptedSegmenter", faults={"smoke": "cuda"})),
        False,
        True,
        "CUDA error",
    ),
]


@pytest.mark.parametrize(("make", "permanent", "smoke", "said"), [c[1:] for c in LOADS], ids=[c[0] for c in LOADS])
def test_a_pipeline_that_does_not_load_is_said_once_and_judged(
    tmp_path: Path, htrflow: Path, make: Callable[[Path], Path], permanent: bool, smoke: bool, said: str
) -> None:
    with gpu_process(make(tmp_path / "pipeline.yaml"), tmp_path / "out", htrflow) as gpu:
        gpu.take(Imported)
        gpu.send(Load(None, str(gpu.directory), True))
        failed = gpu.take(LoadFailed)
        assert (failed.permanent, failed.smoke) == (permanent, smoke)
        assert said.lower() in failed.error.lower()


def test_a_hang_while_loading_shows_in_the_marks(tmp_path: Path, htrflow: Path) -> None:
    step = scripted("Segmentation", "ScriptedSegmenter", load_error="hang")
    with gpu_process(write_pipeline(tmp_path / "p.yaml", step), tmp_path / "out", htrflow) as gpu:
        gpu.take(Imported)
        gpu.send(Load(None, str(gpu.directory), True))
        mark = gpu.until(lambda: gpu.marks().get(0), "a mark")
        assert (mark.step, mark.inside) == ("load", True)
        before = gpu.incarnation.marks.beat[0]
        gpu.until(lambda: gpu.incarnation.marks.beat[0] > before + 1, "the dispatch loop's beat")


def test_an_htrflow_of_neither_api_is_refused_and_the_missing_part_named(tmp_path: Path) -> None:
    (tmp_path / "other" / "htrflow").mkdir(parents=True)
    (tmp_path / "other" / "htrflow" / "__init__.py").touch()
    pipeline = write_pipeline(tmp_path / "p.yaml", *three_steps())
    with gpu_process(pipeline, tmp_path / "out", tmp_path / "other") as gpu:
        failed = gpu.take(LoadFailed)
        assert failed.permanent
        assert "neither htrflow.document nor htrflow.volume" in failed.error


def test_a_missing_symbol_is_named(tmp_path: Path) -> None:
    package = tmp_path / "other" / "htrflow"
    for path in DOUBLE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = package.parent / path.relative_to(DOUBLE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text().replace("class PageXML", "class PageXml"))
    pipeline = write_pipeline(tmp_path / "p.yaml", *three_steps())
    with gpu_process(pipeline, tmp_path / "out", tmp_path / "other") as gpu:
        failed = gpu.take(LoadFailed)
        assert failed.permanent
        assert "PageXML" in failed.error


def test_a_killed_supervisor_is_an_end_of_file_and_the_process_ends(tmp_path: Path, htrflow: Path) -> None:
    with gpu_process(write_pipeline(tmp_path / "p.yaml", *three_steps()), tmp_path / "out", htrflow) as gpu:
        gpu.load()
        gpu.incarnation.outgoing.close()
        assert gpu.died().code == 0
