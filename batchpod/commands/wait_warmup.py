"""`batchpod wait-warmup`: the init container that waits for the model cache (batchpod/README.md, section 10).

Writes no termination message: its one line on stderr becomes the container's message.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from batchpod import advice
from batchpod.errors import ConfigError, Stopped
from batchpod.settings import environment
from batchpod.settings.environment import Command
from batchpod.verdict import ExitCode, verdict_of
from supervisor.lifecycle import STOP_SIGNALS

POLL_S = 10.0


def marker_path(hf_home: str, pipeline_id: str) -> Path:
    """What a warm-up leaves when every model of the pipeline is in the cache."""
    return Path(os.path.abspath(hf_home)).parent / "warmup" / f"{pipeline_id}.done"


def run(environ: Mapping[str, str]) -> int:
    """Wait for the marker, at most WARMUP_WAIT_SECONDS; the exit code."""
    values, problems = environment.read(environ, Command.WAIT_WARMUP)
    if problems:
        print(advice.failure(verdict_of(ConfigError(problems), "warmup")), file=sys.stderr)
        return ExitCode.PERMANENT
    marker, wait_s = marker_path(values["hf_home"], values["pipeline_id"]), values["warmup_wait_s"]
    try:
        for number in STOP_SIGNALS:
            signal.signal(number, _stop)
        found = _appears(marker, wait_s)
    except Stopped:
        return ExitCode.SIGTERM
    if found:
        print(f"the warm-up marker is at {marker}")
        return ExitCode.OK
    waited = f"no warm-up marker at {marker} after {wait_s:g}s"
    print(f"{waited}: the pipeline's warm-up Job has not finished", file=sys.stderr)
    return ExitCode.PERMANENT


def _appears(marker: Path, within_s: float) -> bool:
    end_at = time.monotonic() + within_s
    said = ""
    while True:
        try:
            if marker.exists():
                return True
        except OSError as e:  # A cache volume may be unwell for a while.
            if said != str(e):
                said = str(e)
                print(f"the warm-up marker cannot be looked for: {said}", file=sys.stderr, flush=True)
        left_s = end_at - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(POLL_S, left_s))


def _stop(_number: int, _frame: object) -> None:
    raise Stopped("warmup")
