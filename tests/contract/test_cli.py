"""The command line as a process: exit codes, termination messages, and what it must not import."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from batchpod import __version__
from batchpod.settings.environment import VARIABLES, Command
from tests.commands import started
from tests.conftest import ROOT
from tools.localstack import LocalStack, free_port
from tools.origin import Fault, Origin, html, redirect, running_origin, short, silent, status

PIPELINE = """steps:
- step: TextRecognition
  settings:
    model: TrOCR
    model_settings: {model: owner/name}
"""


HEAVY = {"torch", "htrflow", "aiohttp", "botocore", "numpy", "PIL", "lxml", "rich", "textual", "yaml"}


def surroundings(environ: dict[str, str]) -> dict[str, str]:
    return {n: os.environ[n] for n in os.environ if n.startswith("AWS_") or n in ("PATH", "TMPDIR")} | environ


def batchpod(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    with started(*arguments, environ=surroundings(environ)) as process:
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def until(happened: Callable[[], bool], what: str) -> None:
    end_at = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < end_at, f"not within 30 s: {what}"
        time.sleep(0.01)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A run that is fine, as far as no server is asked."""
    (tmp_path / "work").mkdir()
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return {
        "VOLUME_REF": "R0001203",
        "IIIF_MANIFEST_URL": "http://127.0.0.1:9/manifest.json",
        "PIPELINE_PATH": str(tmp_path / "pipeline.yaml"),
        "PIPELINE_ID": "swedish-1",
        "S3_BUCKET": "results",
        "RESULTS_URL": "https://results.example",
        "WORKDIR_PATH": str(tmp_path / "work"),
        "PIXEL_ARENA_BYTES": "1Mi",
        "TERMINATION_LOG_PATH": str(tmp_path / "message"),
    }


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Origin]:
    """Two small pages behind an image service."""
    folder = tmp_path / "volume"
    folder.mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (60, 40), "white").save(folder / f"{name}.jpg")
    with running_origin(folder) as running:
        yield running


# -------------------------------------------------------------------------------------------- words and help


def test_the_versions_are_those_of_the_installed_packages() -> None:
    done = batchpod("--version")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        f"batchpod {__version__}",
        f"htrflow {version('htrflow')}",
        f"torch {version('torch')}",
    ]


@pytest.mark.parametrize("arguments", [[], ["walk"], ["run", "--fast"], ["pages"], ["check", "now"]])
def test_a_wrong_word_is_a_usage_error(arguments: list[str]) -> None:
    done = batchpod(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage:" in done.stderr


@pytest.mark.parametrize("command", list(Command))
def test_help_lists_the_command_s_variables_and_their_defaults(command: Command) -> None:
    text = batchpod(command, "--help").stdout
    table = [line for line in text.split("environment (")[1].splitlines()[1:] if line.startswith("  ")]
    described = {line.split()[0]: line for line in table}
    assert list(described) == [v.name for v in VARIABLES if command in v.commands]
    for variable in VARIABLES:
        if command in variable.commands and variable.default:
            assert f"[default: {variable.default}]" in described[variable.name]


def test_help_imports_nothing_heavy_and_stays_small() -> None:
    script = (
        "import json, sys\nfrom batchpod.cli import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: pass\n"
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(json.dumps([int(peak), sorted(sys.modules)]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    peak_kib, modules = json.loads(done.stderr)
    assert not HEAVY & set(modules)
    assert peak_kib < 60 * 1024


# ------------------------------------------------------------------------------------------------------- run


def test_a_run_without_settings_names_them_all_in_both_places(tmp_path: Path) -> None:
    done = batchpod("run", TERMINATION_LOG_PATH=str(tmp_path / "message"))
    assert done.returncode == 13
    message = json.loads((tmp_path / "message").read_text())
    assert (message["stage"], message["permanent"]) == ("config", True)
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"permanent failure in config: {message['error']} — ")
    for name in ("VOLUME_REF", "IMAGES", "PIPELINE_PATH", "PIPELINE_ID", "S3_BUCKET", "RESULTS_URL"):
        assert name in line


def test_a_message_path_that_cannot_be_written_does_not_change_the_exit_code(tmp_path: Path) -> None:
    done = batchpod("run", TERMINATION_LOG_PATH=str(tmp_path / "no" / "message"))
    assert done.returncode == 13
    assert "the termination message cannot be written" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("permanent failure in config: ")


def test_a_volume_that_volumes_txt_does_not_have_is_permanent(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "volumes.txt").write_text("A\thttps://h/a.json\r\n\r\n")
    kept = {n: v for n, v in environ.items() if n not in ("VOLUME_REF", "IIIF_MANIFEST_URL")}
    done = batchpod("run", **kept, VOLUMES_PATH=str(tmp_path / "volumes.txt"), JOB_COMPLETION_INDEX="1")
    assert done.returncode == 13
    assert "no volume for index 1" in json.loads((tmp_path / "message").read_text())["error"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_while_the_settings_are_read_is_a_stop(
    environ: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    pipe = tmp_path / "volumes.txt"
    os.mkfifo(pipe)
    kept = {n: v for n, v in environ.items() if n not in ("VOLUME_REF", "IIIF_MANIFEST_URL")}
    writers: list[int] = []

    def reading() -> bool:
        try:
            writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    environment = surroundings(kept | {"VOLUMES_PATH": str(pipe), "JOB_COMPLETION_INDEX": "0"})
    with started("run", environ=environment) as process:
        until(reading, "the run reads volumes.txt")
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    os.close(writers[0])
    assert process.returncode == 143
    message = json.loads((tmp_path / "message").read_text())
    assert message == {"stage": "config", "permanent": False, "error": "SIGTERM"}
    assert err.splitlines()[-1].startswith("transient failure in config: SIGTERM — ")


# ----------------------------------------------------------------------------------------------- wait-warmup


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {"HF_HOME": str(tmp_path / "data" / "hf"), "PIPELINE_ID": "swedish-1"}


def test_a_warm_up_s_marker_ends_the_wait(cache: dict[str, str], tmp_path: Path) -> None:
    marker = tmp_path / "data" / "warmup" / "swedish-1.done"
    marker.parent.mkdir(parents=True)
    marker.touch()
    assert batchpod("wait-warmup", **cache).returncode == 0


def test_a_wait_in_vain_is_one_line_and_permanent(cache: dict[str, str], tmp_path: Path) -> None:
    done = batchpod("wait-warmup", **cache, WARMUP_WAIT_SECONDS="0.2")
    assert done.returncode == 13
    marker = tmp_path / "data" / "warmup" / "swedish-1.done"
    said = "the pipeline's warm-up Job has not finished"
    assert done.stderr == f"no warm-up marker at {marker} after 0.2s: {said}\n"


def test_a_wait_without_settings_says_which(cache: dict[str, str]) -> None:
    done = batchpod("wait-warmup", PIPELINE_ID="a/b")
    assert done.returncode == 13
    assert "HF_HOME is not set" in done.stderr
    assert "PIPELINE_ID=a/b" in done.stderr


def test_a_marker_that_cannot_be_looked_for_is_waited_for_all_the_same(cache: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data" / "warmup").mkdir(parents=True)
    done = batchpod("wait-warmup", **cache | {"PIPELINE_ID": "a" * 300}, WARMUP_WAIT_SECONDS="0.2")
    assert done.returncode == 13
    said = done.stderr.splitlines()
    assert said[0].startswith("the warm-up marker cannot be looked for: [Errno 36] File name too long")
    assert said[-1].endswith("the pipeline's warm-up Job has not finished")
    assert len(said) == 2


def test_a_wait_can_be_stopped(cache: dict[str, str]) -> None:
    with started("wait-warmup", environ=surroundings(cache)) as process:

        def waiting() -> bool:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
            return all(caught & 1 << (number - 1) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))

        until(waiting, "the wait has begun")
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 143


# ----------------------------------------------------------------------------------------------------- pages


def manifest(path: Path, *images: str | None) -> str:
    """A manifest of plain images, None for a canvas without one."""
    canvases: list[dict[str, Any]] = []
    for number, image in enumerate(images, 1):
        annotation = {"type": "Annotation", "motivation": "painting", "body": {"type": "Image", "id": image}}
        items = [] if image is None else [{"type": "AnnotationPage", "items": [annotation]}]
        canvases.append({"id": f"https://h/canvas/{number}", "type": "Canvas", "items": items})
    path.write_text(json.dumps({"id": "https://h/manifest", "type": "Manifest", "items": canvases}))
    return str(path)


def test_the_pages_of_a_file_are_printed_without_credentials(tmp_path: Path) -> None:
    source = manifest(tmp_path / "m.json", "https://u:p@h/1.jpg?v=2&token=hush", "https://h/2.jpg")
    done = batchpod("pages", source)
    assert done.returncode == 0
    assert done.stdout == "0001\thttps://h/1.jpg?v=2\n0002\thttps://h/2.jpg\n"
    whole = batchpod("pages", source, "--credentials")
    assert whole.stdout.splitlines()[0] == "0001\thttps://u:p@h/1.jpg?v=2&token=hush"


def test_the_pages_honour_the_same_settings_as_a_run(tmp_path: Path) -> None:
    source = manifest(tmp_path / "m.json", "https://h/1.jpg", None, "https://h/3.jpg")
    assert batchpod("pages", source, MAX_PAGES="1").stdout == "0001\thttps://h/1.jpg\n"
    refused = batchpod("pages", source)
    assert (refused.returncode, refused.stdout) == (13, "")
    assert refused.stderr.startswith("permanent failure in setup: canvas 2")
    recorded = batchpod("pages", source, EMPTY_CANVAS="record")
    assert recorded.stdout == "0001\thttps://h/1.jpg\n0002\t\n0003\thttps://h/3.jpg\n"


def test_the_pages_of_a_url_are_asked_at_the_wanted_width(origin: Origin) -> None:
    done = batchpod("pages", origin.manifest_url, MAX_IMAGE_WIDTH="50")
    assert done.returncode == 0
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["0001", "0002"]
    assert all(line.endswith("/full/50,/0/default.jpg") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [(400, 13), (401, 13), (403, 13), (404, 13), (410, 13), (418, 1), (429, 1), (500, 1), (503, 1)],
)
def test_a_refused_manifest_ends_as_it_would_end_a_run(origin: Origin, code: int, exit_code: int) -> None:
    origin.fault("manifest", status(code))
    done = batchpod("pages", origin.manifest_url)
    assert (done.returncode, done.stdout) == (exit_code, "")
    kind = "permanent" if exit_code == 13 else "transient"
    assert done.stderr.startswith(f"{kind} failure in setup: the manifest cannot be fetched: HTTP {code}")


def test_a_source_that_cannot_be_asked_or_read(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "big.json").write_text(json.dumps({"x": "y" * 5000}))
    for source, exit_code, settings in (
        ("", 13, {}),
        (str(tmp_path), 13, {}),
        ("ftp://h/manifest.json", 13, {}),
        ("https://", 13, {}),
        ("http://h:99999/manifest.json", 13, {}),
        (str(tmp_path / "none.json"), 13, {}),
        (str(tmp_path / "list.json"), 13, {}),
        (str(tmp_path / "big.json"), 13, {"MANIFEST_MAX_BYTES": "4Ki"}),
        (f"http://127.0.0.1:{free_port()}/manifest.json", 1, {}),
    ):
        done = batchpod("pages", source, **settings)
        assert done.returncode == exit_code, done.stderr
        assert " failure in setup: " in done.stderr
        assert "Traceback" not in done.stderr


def test_an_interrupt_by_hand_leaves_no_traceback(origin: Origin) -> None:
    origin.fault("manifest", silent())
    # Tests that run in the background may be started with it ignored, and a child inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with started("pages", origin.manifest_url, environ=surroundings({})) as process:
            until(lambda: bool(origin.requests), "the manifest is asked for")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (process.returncode, out, err) == (143, "", "")


def test_a_bad_setting_of_pages_is_a_config_error(tmp_path: Path) -> None:
    done = batchpod("pages", manifest(tmp_path / "m.json", "https://h/1.jpg"), MAX_IMAGE_WIDTH="wide")
    assert done.returncode == 13
    assert done.stderr.startswith("permanent failure in config: MAX_IMAGE_WIDTH=wide: expected ")


# ----------------------------------------------------------------------------------------------------- check


def test_check_finds_a_good_run_good_and_asks_nobody(environ: dict[str, str]) -> None:
    done = batchpod("check", **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "are fine" in done.stdout
    assert not Path(environ["TERMINATION_LOG_PATH"]).exists()


def test_check_says_everything_at_once(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE + "- step: Export\n  settings: {dest: out, format: alto}\n")
    done = batchpod("check", **environ | {"S3_BUCKET": "", "MAX_PAGES": "few", "LOOKAHEAD_PAGE": "3"})
    assert done.returncode == 13
    lines = done.stdout.splitlines()
    for problem in ("S3_BUCKET is not set", "MAX_PAGES=few", "PIPELINE_PATH="):
        assert any(line.startswith(f"problem: {problem}") for line in lines), done.stdout
    assert any(line.startswith("warning: LOOKAHEAD_PAGE is set") for line in lines)
    assert lines[-1] == "3 problems: a run would end with exit 13"


def online(environ: Mapping[str, str], origin: Origin, store: LocalStack, bucket: str) -> dict[str, str]:
    return {
        **environ,
        "IIIF_MANIFEST_URL": origin.manifest_url,
        "S3_ENDPOINT": store.url,
        "S3_BUCKET": bucket,
    } | {"MAX_IMAGE_WIDTH": "50"}


def test_check_online_asks_the_manifest_an_image_and_the_store(
    environ: dict[str, str], origin: Origin, localstack: LocalStack, bucket: str
) -> None:
    done = batchpod("check", "--online", **online(environ, origin, localstack, bucket))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"the bucket {bucket} answers" in done.stdout
    assert "the source gives 2 pages" in done.stdout
    assert "a JPEG of 50 x 33 pixels" in done.stdout
    assert "the size form works" in done.stdout
    assert len(origin.requests) == 2


def test_check_online_tells_when_only_the_whole_image_is_served(
    environ: dict[str, str], origin: Origin, localstack: LocalStack, bucket: str
) -> None:
    origin.fault(1, status(501, on=("sized",)))
    done = batchpod("check", "--online", **online(environ, origin, localstack, bucket))
    assert done.returncode == 0
    assert "warning: page 0001: HTTP 501" in done.stdout
    assert "the size form does not work here; `max` does" in done.stdout


def test_check_online_reads_the_sizes_of_a_level_0_service(
    environ: dict[str, str], origin: Origin, localstack: LocalStack, bucket: str
) -> None:
    with running_origin(origin.folder.pages[0].file.parent, level=0) as level0:
        done = batchpod("check", "--online", **online(environ, level0, localstack, bucket))
        assert done.returncode == 0
        assert "the sizes that its service has are read from its info.json" in done.stdout
        assert "gives a JPEG of 60 x 40 pixels" in done.stdout
        assert "the size form does not work here; `60,40` does" in done.stdout
        assert [request.path.rsplit("/", 1)[1] for request in level0.requests][1] == "info.json"


@pytest.mark.parametrize(
    ("fault", "exit_code", "said"),
    [
        (status(404, on=("sized", "max", "full", "info")), 0, "warning: page 0001: HTTP 404 (Not Found)"),
        (status(403), 0, "warning: page 0001: HTTP 403 (Forbidden)"),
        (html(), 1, "warning: page 0001: an HTML page instead of an image"),
        (short(), 1, "warning: page 0001: a short body"),
        (replace(redirect("/files/a.jpg"), on=("sized",)), 0, "warning: it was asked for at 50 pixels wide and comes 60 wide"),
        (redirect("http://169.254.169.254/"), 0, "169.254.169.254 is a link-local address and is not asked"),
    ],
)
def test_check_online_says_what_an_image_s_server_does_wrong(
    environ: dict[str, str], origin: Origin, localstack: LocalStack, bucket: str,
    fault: Fault, exit_code: int, said: str
) -> None:  # fmt: skip
    origin.fault(1, fault)
    done = batchpod("check", "--online", **online(environ, origin, localstack, bucket))
    assert (done.returncode, done.stderr) == (exit_code, "")
    assert said in done.stdout


def test_check_online_ends_as_a_run_would(
    environ: dict[str, str], origin: Origin, localstack: LocalStack, bucket: str
) -> None:
    good = online(environ, origin, localstack, bucket)
    assert batchpod("check", "--online", **good | {"S3_BUCKET": "no-such-bucket"}).returncode == 13
    origin.fault(1, status(503))
    assert batchpod("check", "--online", **good).returncode == 1
    origin.fault("manifest", status(404))
    missing = batchpod("check", "--online", **good)
    assert missing.returncode == 13
    assert "problem: setup: the manifest cannot be fetched: HTTP 404" in missing.stdout
    dead = {"S3_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    origin.mend()
    assert batchpod("check", "--online", **good | dead).returncode == 1
