"""`batchpod COMMAND` as a process of its own, for the tests of commands that are no run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping

from tests.gpu_process import ROOT


@contextlib.contextmanager
def started(*arguments: str, environ: Mapping[str, str], stderr: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """The program under way, its output in pipes; killed where the block ends before it does."""
    with subprocess.Popen(
        [sys.executable, "-m", "batchpod", *arguments],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
