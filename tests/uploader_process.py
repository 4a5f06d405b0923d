"""A real uploader in a real process, driven by hand, and the files that its neighbours would have written."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson

from actors.messages import CODEC, Stop, Upload, page_name
from actors.redact import source_digest
from actors.runlog import RunLog
from actors.specs import UploaderSpec
from supervisor.clock import Clock
from supervisor.process import Incarnation, Plan
from tests.exports import Files, Tree, hand_made, letter

DEADLINE_S = 60.0
PIPELINE = "steps:\n- step: Segmentation\n- step: TextRecognition\n"
Message = TypeVar("Message")


@dataclass(slots=True)
class Workdir:
    """One run's scratch folder: `spec` names the files in it."""

    root: Path
    endpoint: str
    bucket: str
    overrides: dict[str, Any] = field(default_factory=dict)
    log: RunLog = field(init=False)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "export").mkdir()
        (self.root / "pipeline.yaml").write_text(PIPELINE)
        self.log = RunLog(self.root / "log")

    @property
    def spec(self) -> UploaderSpec:
        values: dict[str, Any] = {
            "volume": "R0001203",
            "pipeline_id": "trocr-1",
            "pipeline_path": str(self.root / "pipeline.yaml"),
            "bucket": self.bucket,
            "prefix": "ns/å b",
            "s3_endpoint": self.endpoint,
            "s3_verify_tls": True,
            "results_url": "https://results.example/base/",
            "resume": True,
            "from_images": False,
            "upload_concurrency": 4,
            "max_image_width": 2500,
            **{f"{name}_path": str(self.root / f"{name}.json") for name in ("pages", "source", "done", "missing")},
            "log_dir": str(self.root / "log"),
            "run_id": "run-1",
            "attempt": "0",
            "image_digest": "sha256:abc",
            "htrflow_base_revision": "ef0ed37",
            "batchpod_version": "1.2.3",
        }
        return UploaderSpec(**(values | self.overrides))

    def write_pages(self, count: int, url: str = "https://images.example/{}/full/2500,/0/default.jpg") -> None:
        urls = [url.format(number) for number in range(1, count + 1)]
        self.write_page_list([page(u) for u in urls])

    def write_page_list(
        self, pages: list[dict[str, Any]], source: str | None = "https://origin.example/m.json"
    ) -> None:
        document = {"source": source, "label": {"sv": ["Brev"]}, "total": len(pages), "pages": pages}
        (self.root / "pages.json").write_bytes(orjson.dumps(document))

    def export(self, number: int, tree: Tree | None = None, files: Files | None = None) -> Upload:
        """Write a page's export, and what the supervisor would then ask for."""
        tree = tree or letter()
        files = files or hand_made(tree)
        base = self.root / "export" / page_name(number)
        base.with_suffix(".page.xml").write_bytes(files.page)
        base.with_suffix(".alto.xml").write_bytes(files.alto)
        base.with_suffix(".tree.json").write_bytes(orjson.dumps(files.tree))
        return Upload(number, str(self.root / "export"), tree.width, tree.height)

    def write_outcomes(self, statuses: Mapping[int, str], **run: Any) -> str:
        pages = {
            str(number): {"status": status, "seconds": 1.5}
            | ({"error": "because"} if status == "failed" else {"width": 500, "height": 600, "lines": 4})
            for number, status in statuses.items()
        }
        path = self.root / "outcomes.json"
        path.write_bytes(orjson.dumps({"pages": pages, "run": {"htrflow_version": "0.2.6", "bytes_fetched": 7} | run}))
        return str(path)

    @property
    def done(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads((self.root / "done.json").read_bytes())
        return found

    @property
    def exported(self) -> list[str]:
        return sorted(os.listdir(self.root / "export"))


def page(url: str, **more: Any) -> dict[str, Any]:
    """One entry of the page list."""
    return {
        "url": url,
        "service": None,
        "api": 2,
        "level0": False,
        "canvas_id": f"{url}#canvas",
        "label": {"none": ["a"]},
        "width": None,
        "height": None,
        "body": {"id": url, "type": "Image", "service": [{"@id": url, "@type": "ImageService2", "profile": "level1"}]},
        "digest": source_digest(url),
        "error": None,
    } | more


class UploaderProcess:
    def __init__(self, workdir: Workdir) -> None:
        kept = ("PATH", "HOME", "TMPDIR", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_EC2_METADATA_DISABLED")
        plan = Plan(
            name="uploader",
            entry="actors.uploader.actor:main",
            codec=CODEC,
            codec_name="actors.messages:CODEC",
            spec=workdir.spec,
            environment={name: os.environ[name] for name in kept if name in os.environ},
        )
        self.incarnation = Incarnation(plan, 1, Clock())
        self.messages: list[Any] = []
        self.log = ""

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.incarnation.outgoing.put(message)

    def poll(self) -> None:
        self.incarnation.outgoing.flush()
        self.messages += self.incarnation.incoming.take()
        self.log += self.incarnation.output.read()[0].decode()

    def take(self, kind: type[Message], deadline_s: float = DEADLINE_S) -> Message:
        """The next message of that type, waited for and removed."""
        end = time.monotonic() + deadline_s
        while True:
            self.poll()
            for message in self.messages:
                if isinstance(message, kind):
                    self.messages.remove(message)
                    return message
            if time.monotonic() > end or self.incarnation.incoming.ended:
                raise AssertionError(f"{kind.__name__} did not come; had {self.messages}\n{self.log}")
            time.sleep(0.002)

    def ask(self, message: Any, kind: type[Message]) -> Message:
        self.send(message)
        return self.take(kind)

    def end(self, within_s: float = 20.0) -> int | None:
        """Ask it to stop, and its exit status."""
        self.send(Stop(within_s))
        end = time.monotonic() + within_s + DEADLINE_S
        while not self.incarnation.has_died() and time.monotonic() < end:
            self.poll()
            time.sleep(0.002)
        self.poll()
        return self.incarnation.reap().code


@contextlib.contextmanager
def uploader(workdir: Workdir) -> Iterator[UploaderProcess]:
    """A running uploader; killed at the end if it is still there."""
    process = UploaderProcess(workdir)
    try:
        yield process
    finally:
        workdir.log.close()
        process.incarnation.reap()
        process.incarnation.close()
