"""Warm-ups as processes, against a stand-in of the Hub: exit codes, messages, the cache and the marker."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import started
from tests.doubles.hub import Hub, running_hub
from tests.gpu_process import DOUBLE, ROOT, write_pipeline
from tests.small_disk import small_disk

MODELS = ROOT / "tools" / "demo_models" / "hub"
PIPELINE = ROOT / "tools" / "demo" / "pipeline.yaml"
TOKEN = "hf_averysecrettoken"

FROM_HUB = '''

class FromHub(ScriptedReader):
    """Takes its file from the Hub; `model` is the repository."""

    def __init__(self, model, revision="main", **kwargs):
        from huggingface_hub import hf_hub_download

        super().__init__(model=model, **kwargs)
        hf_hub_download(model, "model.pt", revision=revision)


MODELS = (*MODELS, FromHub)
'''


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in htrflow with one more model, which loads from the Hub without torch."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    folder = tmp_path_factory.mktemp("htrflow")
    shutil.copytree(DOUBLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    scripted = folder / "htrflow" / "models" / "scripted.py"
    scripted.write_text(scripted.read_text() + FROM_HUB)
    return folder


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub(MODELS) as running:
        yield running


@pytest.fixture
def environ(tmp_path: Path, hub: Hub, double: Path) -> dict[str, str]:
    """A warm-up that is fine."""
    return {
        "PATH": os.environ["PATH"],
        "TMPDIR": os.environ["TMPDIR"],
        "HOME": str(tmp_path),
        "YOLO_CONFIG_DIR": str(tmp_path),
        "PYTHONPATH": f"{double}{os.pathsep}{ROOT}",
        "PYTEST_CURRENT_TEST": os.environ["PYTEST_CURRENT_TEST"],
        "OMP_NUM_THREADS": "1",
        "PIPELINE_PATH": str(pipeline(tmp_path)),
        "PIPELINE_ID": "swedish-1",
        "HF_HOME": str(tmp_path / "cache" / "huggingface"),
        "HF_ENDPOINT": hub.url,
        "TERMINATION_LOG_PATH": str(tmp_path / "message"),
    }


def pipeline(folder: Path, **settings: Any) -> Path:
    model_settings = {"model": "demo/regions", **settings}
    step = {"step": "TextRecognition", "settings": {"model": "FromHub", "model_settings": model_settings}}
    return write_pipeline(folder / "pipeline.yaml", step)


def batchpod(environ: dict[str, str], command: str = "warmup") -> tuple[int, str]:
    """The exit code and what was said."""
    with started(command, environ=environ, stderr=subprocess.STDOUT) as process:
        said = process.communicate(timeout=240)[0]
    return process.returncode, said


def message(environ: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(environ["TERMINATION_LOG_PATH"]).read_text())
    return found


def marker(environ: dict[str, str]) -> Path:
    return Path(environ["HF_HOME"]).parent / "warmup" / f"{environ['PIPELINE_ID']}.done"


def ended(environ: dict[str, str], code: int, error: str) -> str:
    """Run a warm-up that ends with `code`, with `error` in its message and no marker; what it said."""
    found, said = batchpod(environ)
    assert found == code, said
    left = message(environ)
    assert (left["stage"], left["permanent"]) == ("warmup", code == 13)
    assert error in left["error"], said
    assert not marker(environ).is_file()
    return said


def test_a_warm_up_fills_the_cache_and_leaves_the_marker_that_is_waited_for(environ: dict[str, str]) -> None:
    waiting = environ | {"WARMUP_WAIT_SECONDS": "0.2"}
    code, said = batchpod(waiting, "wait-warmup")
    assert (code, "has not finished" in said) == (13, True)
    code, said = batchpod(environ)
    assert code == 0, said
    assert "FromHub demo/regions" in said.splitlines()[-1]
    assert [path.name for path in marker(environ).parent.iterdir()] == ["swedish-1.done"]
    assert list(Path(environ["HF_HOME"]).rglob("snapshots/*/model.pt"))
    assert not Path(environ["TERMINATION_LOG_PATH"]).exists()
    assert batchpod(waiting, "wait-warmup")[0] == 0


def test_the_demo_s_models_are_all_loaded_on_the_cpu_whatever_device_they_are_for(
    environ: dict[str, str], hub: Hub, tmp_path: Path
) -> None:
    pytest.importorskip("htrflow.volume.node", reason="htrflow 0.2.6 is not installed")
    recipe = yaml.safe_load(PIPELINE.read_text())
    for step in recipe["steps"][:3]:
        step["settings"]["model_settings"]["device"] = "cuda"
    write_pipeline(tmp_path / "pipeline.yaml", *recipe["steps"])
    code, said = batchpod(environ | {"PYTHONPATH": str(ROOT)})
    assert code == 0, f"{said}\n{hub.requests}"
    assert marker(environ).read_text().splitlines() == ["YOLO demo/regions", "YOLO demo/lines", "TrOCR demo/trocr"]
    files = {path.name for path in Path(environ["HF_HOME"]).rglob("snapshots/*/*")}
    assert {"model.pt", "model.safetensors", "config.json", "tokenizer.json"} <= files


def test_a_gated_model_of_transformers_is_permanent(environ: dict[str, str], hub: Hub, tmp_path: Path) -> None:
    pytest.importorskip("htrflow.volume.node", reason="htrflow 0.2.6 is not installed")
    hub.gated.add("demo/trocr")
    write_pipeline(tmp_path / "pipeline.yaml", yaml.safe_load(PIPELINE.read_text())["steps"][2])
    said = ended(environ | {"PYTHONPATH": str(ROOT)}, 13, "gated")
    assert "give the warm-up a token" in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("settings", "gated", "error"),
    [
        ({"model": "demo/nothing"}, "", "RepositoryNotFoundError"),
        ({"revision": "gone"}, "", "RevisionNotFoundError"),
        ({}, "demo/regions", "GatedRepoError"),
        ({"colour": "red"}, "", "colour"),
    ],
    ids=["missing repo", "missing revision", "gated repo", "wrong setting"],
)
def test_what_the_hub_does_not_have_or_give_is_permanent(
    environ: dict[str, str], hub: Hub, tmp_path: Path, settings: dict[str, Any], gated: str, error: str
) -> None:
    hub.gated.add(gated)
    pipeline(tmp_path, **settings)
    said = ended(environ, 13, error)
    assert said.splitlines()[-1].startswith("permanent failure in warmup: ")


def test_a_pipeline_file_that_is_no_pipeline_is_permanent(environ: dict[str, str]) -> None:
    Path(environ["PIPELINE_PATH"]).write_text("steps: [")
    ended(environ, 13, "not YAML")


def test_a_download_that_breaks_off_is_transient(environ: dict[str, str], hub: Hub) -> None:
    hub.cut = "model.pt"
    said = ended(environ, 1, "")
    assert "the models cannot be downloaded now" in said.splitlines()[-1]


def test_a_hub_that_cannot_be_reached_is_transient(environ: dict[str, str]) -> None:
    said = ended(environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}, 1, "LocalEntryNotFoundError")
    assert "the Hub at http://127.0.0.1:9 cannot be reached (" in said.splitlines()[-1]
    assert "the models cannot be downloaded now" in said.splitlines()[-1]


def test_a_pipeline_s_own_mistake_is_permanent_without_a_hub_too(environ: dict[str, str]) -> None:
    Path(environ["PIPELINE_PATH"]).write_text("steps: [")
    ended(environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}, 13, "not YAML")


def test_a_full_cache_needs_no_hub(environ: dict[str, str]) -> None:
    assert batchpod(environ)[0] == 0
    marker(environ).unlink()
    code, said = batchpod(environ | {"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert code == 0, said
    assert "only what is in the cache can be loaded" in said
    assert marker(environ).is_file()


@pytest.mark.parametrize("options", [(), ("ro",)], ids=["full", "read-only"])
def test_a_cache_that_takes_no_files_is_transient(environ: dict[str, str], options: tuple[str, ...]) -> None:
    with small_disk(Path(environ["HF_HOME"]), "size=1m", *options):
        ended(environ, 1, "Read-only file system" if options else "No space left on device")


def test_a_marker_for_which_there_is_no_room_is_transient(environ: dict[str, str]) -> None:
    with small_disk(marker(environ).parent, "nr_inodes=1"):
        ended(environ, 1, "No space left on device")


def test_a_marker_that_cannot_be_written_is_permanent(environ: dict[str, str]) -> None:
    marker(environ).mkdir(parents=True)
    said = ended(environ, 13, f"the warm-up marker {marker(environ)} cannot be written")
    assert "COMPLETE" not in said
    assert [path.name for path in marker(environ).parent.iterdir()] == ["swedish-1.done"]


@pytest.mark.parametrize("value", ["1", "true", "2"])
def test_a_warm_up_that_may_not_go_online_is_refused(environ: dict[str, str], value: str) -> None:
    said = ended(environ | {"HF_HUB_OFFLINE": value}, 13, f"HF_HUB_OFFLINE={value}")
    last = said.splitlines()[-1]
    assert last.startswith("permanent failure in warmup: ")
    assert last.endswith("correct the variables named, then run the warm-up again.")


def test_all_that_is_wrong_with_the_environment_is_said_at_once(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").unlink()
    said = ended(environ | {"PIPELINE_ID": "../up", "HF_HUB_OFFLINE": "1"}, 13, "PIPELINE_ID=../up: ")
    for problem in ("PIPELINE_PATH=", "HF_HUB_OFFLINE=1"):
        assert problem in said.splitlines()[-1]
    assert "the environment does not describe a warm-up" in said
    assert not Path(environ["HF_HOME"]).exists()


def test_a_warm_up_without_settings_names_them(tmp_path: Path) -> None:
    bare = {"PATH": os.environ["PATH"], "TERMINATION_LOG_PATH": str(tmp_path / "message")}
    code, said = batchpod(bare)
    assert code == 13
    for name in ("PIPELINE_PATH", "PIPELINE_ID", "HF_HOME"):
        assert f"{name} is not set" in message(bare)["error"]
        assert f"{name} is not set" in said


def test_a_signal_while_the_program_is_imported_stops_the_warm_up(environ: dict[str, str], tmp_path: Path) -> None:
    """Its first import is held up here by a pipe that nobody writes to."""
    slow = tmp_path / "slow"
    slow.mkdir()
    os.mkfifo(slow / "pipe")
    (slow / "tempfile.py").write_text(f"open({str(slow / 'pipe')!r}).read()\n")
    slowly = environ | {"PYTHONPATH": f"{slow}{os.pathsep}{ROOT}"}
    with started("warmup", environ=slowly, stderr=subprocess.STDOUT) as process:
        end_at, writer = time.monotonic() + 60, -1
        while writer < 0:
            assert time.monotonic() < end_at
            with contextlib.suppress(OSError):  # Nobody reads it yet.
                writer = os.open(slow / "pipe", os.O_WRONLY | os.O_NONBLOCK)
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[0]
    os.close(writer)
    assert process.returncode == 143, said
    assert message(environ) == {"stage": "warmup", "permanent": False, "error": "SIGTERM"}


@pytest.mark.parametrize("value", ["", "0", "False", "no", "OFF"])
def test_every_word_for_online_is_taken(environ: dict[str, str], value: str) -> None:
    code, said = batchpod(environ | {"HF_HUB_OFFLINE": value, "TRANSFORMERS_OFFLINE": "1"})
    assert code == 0, said


def test_a_token_is_sent_and_its_value_never_said(environ: dict[str, str], hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    code, said = batchpod(environ | {"HF_TOKEN_PATH": str(tmp_path / "token")})
    assert (code, f"Bearer {TOKEN}" in hub.tokens) == (0, True), said
    assert "Hub token: there is one" in said
    assert TOKEN not in said


def test_a_token_inside_an_error_is_not_said_either(environ: dict[str, str], tmp_path: Path) -> None:
    pipeline(tmp_path, load_error=f"OSError: 'Bearer {TOKEN}' is no header")
    said = ended(environ | {"HF_TOKEN": f"{TOKEN}\n"}, 1, "'Bearer ***' is no header")
    assert "Traceback" in said
    assert TOKEN not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_a_download_stops_the_warm_up(environ: dict[str, str], hub: Hub, number: int) -> None:
    hub.hold = "resolve"
    with started("warmup", environ=environ, stderr=subprocess.STDOUT) as process:
        end_at = time.monotonic() + 60
        while not any("resolve" in request for request in hub.requests):
            assert time.monotonic() < end_at, "nothing was asked of the Hub"
            time.sleep(0.02)
        process.send_signal(number)
        process.send_signal(number)
        assert process.wait(60) == 143
    assert message(environ) == {"stage": "warmup", "permanent": False, "error": "SIGTERM"}
    assert not marker(environ).exists()


def test_a_loading_process_that_dies_is_transient(environ: dict[str, str], double: Path, tmp_path: Path) -> None:
    package = tmp_path / "broken"
    shutil.copytree(double, package)
    models = package / "htrflow" / "models" / "__init__.py"
    models.write_text(models.read_text() + "\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    ended(environ | {"PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}, 1, "was killed")
