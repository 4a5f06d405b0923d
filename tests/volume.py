"""One whole run of a volume as a test sees it: `batchpod run` in a process of its own, between a real origin and a real
store, on the document API's stand-in (or what `htrflow` names)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from PIL import Image, ImageDraw

from tests.gpu_process import DOUBLE, ROOT
from tools.origin import Origin

LIMIT_S = 120.0
ACTOR = re.compile(r"^\S+ ([\w-]+)#\d+ (?:started, pid (\d+)|the standby \(pid (\d+)\))", re.MULTILINE)
GPU_DEATH = re.compile(r"gpu-\d#\d+ (?:killed by|ended with)")


def page_images(folder: Path, count: int, size: tuple[int, int] = (120, 160)) -> Path:
    """`count` small pages, each with a mark of its own, so that its text is its own too."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, count + 1):
        image = Image.new("RGB", size, (235, 230, 215))
        draw = ImageDraw.Draw(image)
        draw.text((10, 10), f"page {number}", fill=(20, 20, 60))
        draw.rectangle((10, 40, 10 + number % 90, 60), fill=(number % 200, 30, 40))
        image.save(folder / f"{number:04d}.png")
    return folder


def steps(faults: dict[str, str] | None = None, **reader: Any) -> list[dict[str, Any]]:
    """Regions, lines, text, by scripted models; `faults` and the other settings are the reader's."""
    settings = {"model": "test/reader", "faults": faults or {}, **reader}
    return [
        {
            "step": "Segmentation",
            "settings": {"model": "ScriptedSegmenter", "model_settings": {"model": "test/regions"}},
        },
        {
            "step": "Segmentation",
            "settings": {
                "model": "ScriptedSegmenter",
                "model_settings": {"model": "test/lines", "rows": 3, "label": "line"},
            },
        },
        {
            "step": "TextRecognition",
            "settings": {
                "model": "ScriptedReader",
                "model_settings": settings,
                "generation_settings": {"batch_size": 2},
            },
        },
    ]


@dataclass
class Ended:
    """How a run ended: exit code, everything it printed, the termination message, how long it took."""

    code: int
    log: str
    message: dict[str, Any] | None
    seconds: float

    @property
    def last_line(self) -> str:
        return self.log.rstrip().rpartition("\n")[2]


class Running:
    """A run under way. Its output is collected in the background."""

    def __init__(self, command: list[str], environ: dict[str, str], termination: Path) -> None:
        self._began_at, self._termination = time.monotonic(), termination
        self.process = subprocess.Popen(
            command, env=environ, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        self._lines: list[str] = []
        self._seen: list[tuple[int, str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line.decode("utf-8", "replace"))

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def until(self, pattern: str, limit_s: float = LIMIT_S) -> re.Match[str]:
        """Wait until a line of the log matches."""
        return wait_for(lambda: re.search(pattern, self.log, re.MULTILINE), f"{pattern!r} in the log", limit_s, self)

    def until_stored(self, pages: int) -> None:
        """Wait until so many pages are stored, whichever they are: they go in the order in which they are ready."""
        done = re.compile(r"^page \d+ ok", re.MULTILINE)
        wait_for(lambda: len(done.findall(self.log)) >= pages, f"{pages} pages stored", running=self)

    def children(self, name: str) -> list[int]:
        """The pids of the live actors whose name begins so, oldest first; a promoted standby has its new name."""
        names = {int(pid or other): actor for actor, pid, other in ACTOR.findall(self.log)}
        return [pid for pid, actor in names.items() if actor.startswith(name) and psutil.pid_exists(pid)]

    def end(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for the end; a run that outlasts the limit is killed and fails the test."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.close()
            raise AssertionError(f"the run did not end in {limit_s:g} s; its log:\n{self.log}") from None
        seconds = time.monotonic() - self._began_at
        self.close()
        text = self._termination.read_text() if self._termination.exists() else ""
        return Ended(code, self.log, json.loads(text) if text else None, seconds)

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        """Whatever became of the test: no process, no thread, no descriptor."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


def wait_for(what: Callable[[], Any], name: str, limit_s: float = LIMIT_S, running: Running | None = None) -> Any:
    """Poll until `what()` is true, and give its value."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if value := what():
            return value
        if running is not None and running.process.poll() is not None:
            if value := what():
                return value
            raise AssertionError(f"the run ended before {name}; its log:\n{running.log}")
        time.sleep(0.02)
    raise AssertionError(f"no {name} in {limit_s:g} s" + (f"; the log:\n{running.log}" if running else ""))


@dataclass
class Volume:
    """The place of a run: its environment, and its keys in the bucket."""

    tmp: Path
    s3: Any
    bucket: str
    endpoint: str
    origin: Origin | None = None
    ref: str = field(default_factory=lambda: f"R{uuid.uuid4().hex[:8]}")
    htrflow: Path | None = DOUBLE
    environ: dict[str, str] = field(default_factory=dict)
    runs: list[Running] = field(default_factory=list)
    launcher: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workdir = self.tmp / "work"
        self.workdir.mkdir(exist_ok=True)
        self.pipeline = self.tmp / "pipeline.yaml"
        self.termination = self.tmp / "termination.json"
        self.prefix = f"campaign/test-recipe/{self.ref}"
        self.use(steps())

    def use(self, pipeline_steps: Iterable[dict[str, Any]]) -> None:
        self.pipeline.write_text(yaml.safe_dump({"steps": list(pipeline_steps)}, sort_keys=False))

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join(str(p) for p in (self.htrflow, ROOT) if p)
        kept = {n: os.environ[n] for n in ("PATH", "HOME", "TMPDIR", "AWS_SHARED_CREDENTIALS_FILE") if n in os.environ}
        source = {"IIIF_MANIFEST_URL": self.origin.manifest_url} if self.origin else {}
        return {
            **kept,
            **source,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": path,
            "VOLUME_REF": self.ref,
            "PIPELINE_PATH": str(self.pipeline),
            "PIPELINE_ID": "test-recipe",
            "S3_BUCKET": self.bucket,
            "S3_ENDPOINT": self.endpoint,
            "S3_PREFIX": "campaign",
            "RESULTS_URL": "https://results.example/files",
            "WORKDIR_PATH": str(self.workdir),
            "TERMINATION_LOG_PATH": str(self.termination),
            "PIXEL_ARENA_BYTES": "8Mi",
            "GPU_STANDBY": "false",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            **self.environ,
            **more,
        }

    def start(self, *hurry: str, **more: str) -> Running:
        """Start a run with these variables; `hurry` shortens limits that have no variable (tests/hurried.py)."""
        self.termination.unlink(missing_ok=True)
        module = ("tests.hurried", *hurry) if hurry else ("batchpod",)
        command = [*self.launcher, sys.executable, "-m", *module, "run"]
        self.runs.append(Running(command, self.environment(**more), self.termination))
        return self.runs[-1]

    def close(self) -> None:
        for running in self.runs:
            running.close()

    def run(self, limit_s: float = LIMIT_S, **more: str) -> Ended:
        return self.start(**more).end(limit_s)

    # ------------------------------------------------------------------------------------------------- what is stored

    def listing(self) -> set[str]:
        """Every key of the bucket."""
        found: set[str] = set()
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
            found |= {entry["Key"] for entry in page.get("Contents", [])}
        return found

    def get(self, key: str) -> bytes:
        body: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return body

    def head(self, key: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.s3.head_object(Bucket=self.bucket, Key=key)
        return answer

    def json(self, name: str) -> Any:
        return json.loads(self.get(f"{self.prefix}/{name}"))

    @property
    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = self.json("manifest.json")
        return manifest

    @property
    def run_log(self) -> str:
        return self.get(f"status/logs/test-recipe/{self.ref}.txt").decode()

    def pages_stored(self, kind: str = "page") -> set[str]:
        start = f"{self.prefix}/{kind}/"
        return {key.removeprefix(start).removesuffix(".xml") for key in self.listing() if key.startswith(start)}

    def outcomes(self) -> dict[str, str]:
        """Page name to status, from manifest.json."""
        return {name: result["status"] for name, result in self.manifest["results"].items()}

    def left_in_workdir(self) -> set[str]:
        return {path.name for path in self.workdir.iterdir()}
