"""`batchpod wait-warmup`: the init container that waits for the model cache (contract.md section 10).

Writes no termination message: its one line on stderr becomes the container's message.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from batchpod import advice, environment
from batchpod.environment import Command
from batchpod.errors import ConfigError
from batchpod.verdict import ExitCode, verdict_of

POLL_S = 10.0
STOPS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def marker_path(hf_home: str, pipeline_id: str) -> Path:
    """What a warm-up leaves when every model of the pipeline is in the cache."""
    return Path(os.path.abspath(hf_home)).parent / "warmup" / f"{pipeline_id}.done"


def run(environ: Mapping[str, str]) -> int:
    """Wait for the marker, at most WARMUP_WAIT_SECONDS; the exit code."""
    values, problems = environment.read(environ, Command.WAIT_WARMUP)
    if problems:
        print(advice.failure(verdict_of(ConfigError(problems), "config")), file=sys.stderr)
        return ExitCode.PERMANENT
    marker, wait_s = marker_path(values["hf_home"], values["pipeline_id"]), values["warmup_wait_s"]
    end_at = time.monotonic() + wait_s
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        while not marker.exists():
            left_s = end_at - time.monotonic()
            if left_s <= 0:
                waited = f"no warm-up marker at {marker} after {wait_s:g}s"
                print(f"{waited}: the pipeline's warm-up Job has not finished", file=sys.stderr)
                return ExitCode.PERMANENT
            if signal.sigtimedwait(STOPS, min(POLL_S, left_s)) is not None:
                return ExitCode.SIGTERM
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    print(f"the warm-up marker is at {marker}")
    return ExitCode.OK
