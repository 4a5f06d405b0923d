"""LocalStack on this machine without Docker: S3 on a loopback port, for tests and the demo.

It runs in a virtual environment of its own (`make setup`), keeps its objects in memory, and dies with the process
that started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INTERPRETER_VARIABLE = "BATCHPOD_LOCALSTACK_PYTHON"
START_S = 120.0
STOP_S = 5.0
REGION = "us-east-1"
CREDENTIALS = "[default]\naws_access_key_id = test\naws_secret_access_key = test\n"

# PR_SET_PDEATHSIG (1) outlives exec.
_BOUND_TO_PARENT = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


class Unavailable(Exception):
    """LocalStack did not start; the text says why."""


class NotInstalled(Unavailable):
    """There is no LocalStack on this machine; the text says what to do."""


@dataclass(frozen=True, slots=True)
class LocalStack:
    """A running store: `url` is the S3 endpoint, `pid` leads its process group, `log` holds what it printed."""

    url: str
    pid: int
    log: Path


def interpreter() -> Path:
    """The Python that has LocalStack; raises NotInstalled where there is none."""
    named = os.environ.get(INTERPRETER_VARIABLE)
    path = Path(named or Path(__file__).resolve().parent.parent / ".venv-localstack" / "bin" / "python")
    if not path.exists():
        raise NotInstalled(f"LocalStack is not installed: {path} does not exist. Run `make setup`.")
    return path


def bound_to_parent(command: list[str]) -> list[str]:
    """The command, made to die (SIGKILL) with the thread of this process that starts it."""
    return [sys.executable, "-c", _BOUND_TO_PARENT, str(os.getpid()), *command]


def free_port() -> int:
    """A loopback port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running() -> Iterator[LocalStack]:
    """Start LocalStack, yield it once its S3 answers, and end its process group whatever happens.

    Call it from the main thread: the process dies with the thread that starts it. Raises Unavailable.
    """
    python = str(interpreter())
    with tempfile.TemporaryDirectory(prefix="localstack-") as directory:
        port, log = free_port(), Path(directory, "output.txt")
        with log.open("wb") as output:
            process = subprocess.Popen(
                bound_to_parent([python, "-m", "localstack.runtime.main"]),
                env=_environment(port, directory),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(process, url, log)
            yield LocalStack(url, process.pid, log)
        finally:
            _end(process)


def client(url: str, session: Any = None) -> Any:
    """A botocore S3 client for the store at `url`; close it in the end. A `session` that is used again saves time."""
    import botocore.config
    import botocore.session

    return (session or botocore.session.Session()).create_client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=botocore.config.Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 2}, proxies={}),
    )


def _environment(port: int, directory: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    return kept | {
        "HOME": directory,
        "TMPDIR": directory,
        "LOCALSTACK_VOLUME_DIR": directory,
        "GATEWAY_LISTEN": f"127.0.0.1:{port}",
        "SERVICES": "s3",
        "EAGER_SERVICE_LOADING": "1",
        "DNS_ADDRESS": "0",
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
    }


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), opener.open(f"{url}/_localstack/health", timeout=5) as answer:
            if b'"s3": "running"' in answer.read():
                return
        time.sleep(0.1)
    ended = process.returncode is not None
    state = f"ended with status {process.returncode}" if ended else f"was not ready in {START_S:.0f} s"
    raise Unavailable(f"LocalStack {state}; it last said:\n{log.read_text(errors='replace')[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
            break
    # The group may hold more than its leader.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    with running() as store:
        print(f"S3 at {store.url} (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
