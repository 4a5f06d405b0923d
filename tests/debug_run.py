"""A live run to look into: real supervisor and actors on the document API's stand-in, between a real origin and a store
in this process; and the debug commands as a person gives them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doubles import s3
from tests.gpu_process import ROOT
from tests.volume import Running, Volume, page_images, steps, wait_for
from tools.origin import Fault, delay, running_origin


@dataclass(frozen=True, slots=True)
class Said:
    """What a command gave: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Debugged:
    """A run under way, and where it works."""

    volume: Volume
    running: Running
    store: s3.Store

    def ask(self, *arguments: str, **environ: str) -> Said:
        """One command in a process of its own, as under `kubectl exec`; it finds the socket from WORKDIR_PATH."""
        return debug(*arguments, WORKDIR_PATH=str(self.volume.workdir), **environ)

    def until(self, what: str, arguments: list[str], holds: Any) -> Any:
        """Poll a command's JSON until `holds(it)`."""

        def look() -> Any:
            said = self.ask(*arguments, "--json")
            return said.code == 0 and holds(said.json) and said.json

        return wait_for(look, what, running=self.running)

    @property
    def socket(self) -> Path:
        return self.volume.workdir / "supervisor.sock"


def debug(*arguments: str, **environ: str) -> Said:
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return Said(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def debugged(
    tmp: Path,
    *,
    pages: int = 6,
    faults: dict[str, str] | None = None,
    reader: dict[str, Any] | None = None,
    origin_faults: Any = None,
    **environ: str,
) -> Iterator[Debugged]:
    """Such a run while the block lasts; one that is still alive then is killed. `faults` and `reader` are settings of
    the scripted reader."""
    images = page_images(tmp / "images", pages)
    with s3.running() as store, running_origin(images, faults=origin_faults) as origin:
        volume = Volume(tmp, None, "results", store.url, origin)
        state = tmp / "state"
        state.mkdir()
        volume.use(steps(faults, state=str(state), **(reader or {})))
        running = volume.start(**environ)
        try:
            yield Debugged(volume, running, store)
        finally:
            if running.process.poll() is None:
                running.kill()
            log = running.end().log
            assert not re.search(r"the run goes on.*\nTraceback", log), log
            # A killed run leaves its socket to the next one, which there is none of here.
            (volume.workdir / "supervisor.sock").unlink(missing_ok=True)


@contextlib.contextmanager
def standing_still(tmp: Path) -> Iterator[Debugged]:
    """A run that hangs on page 0003 while the block lasts: two pages are done, one waits behind it in the gpu process,
    two in the arena; a standby is there."""
    late: dict[int | str, Fault] = {3: delay(1.5), 4: delay(3), 5: delay(3), 6: delay(3)}
    environ = {"PAGE_TIMEOUT_SECONDS": "600", "GPU_STANDBY": "true"}
    with debugged(tmp, faults={"0003": "hang"}, origin_faults=late, **environ) as run:

        def stands(said: Any) -> bool:
            counts = said["run"]["counts"]
            standby = any(row["state"] == "ready" for row in said["actors"])
            return standby and (counts["ok"], counts["transcribing"], counts["ready"]) == (2, 2, 2)

        run.until("standstill", ["status"], stands)
        yield run
