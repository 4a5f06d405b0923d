"""`batchpod warmup`: fills the model cache for one pipeline and leaves the marker (batchpod/README.md, section 10).

Owns the environment's checks, the process that loads (actors/gpu/warm.py), the marker and the ending. This process
imports no model code, so that a signal is answered at once whatever the loading is in the middle of.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

from actors.redact import for_log
from actors.room import no_room
from batchpod import advice
from batchpod.commands.wait_warmup import marker_path
from batchpod.errors import Cause, ConfigError, Permanent, Stopped, Transient
from batchpod.reporting import termination
from batchpod.settings import environment
from batchpod.settings.config import unreadable
from batchpod.settings.environment import Command, shown
from batchpod.verdict import ExitCode, verdict_of
from supervisor.lifecycle import STOP_SIGNALS

ONLINE = ("", "0", "false", "no", "off")
STAGE = "warmup"
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_LEAST_SECRET = 4
_KILLED_S = 10.0


def run(environ: Mapping[str, str]) -> int:
    """Warm the cache up; the exit code of the program. From here on a signal is exit 143 with its message."""
    with _stops() as stop:
        path = environ.get("TERMINATION_LOG_PATH") or environment.BY_NAME["TERMINATION_LOG_PATH"].default or ""
        try:
            _warm_up(environ, stop, lambda: termination.write(path, verdict_of(Stopped(STAGE), STAGE)))
            return ExitCode.OK
        except Exception as e:
            verdict = verdict_of(Stopped(STAGE) if stop.asked else e, STAGE)
        termination.write(path, verdict)
        if verdict.cause is Cause.UNEXPECTED:
            traceback.print_exc()
        print(advice.failure(verdict), file=sys.stderr, flush=True)
        return verdict.code


class _Stop:
    """Whether the pod was told to stop; `fd` becomes readable when it is."""

    def __init__(self, fd: int) -> None:
        self.asked, self.fd = False, fd

    def ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def check(self) -> None:
        if self.asked:
            raise Stopped(STAGE)


@contextlib.contextmanager
def _stops() -> Iterator[_Stop]:
    read, write = os.pipe()
    os.set_blocking(write, False)
    stop = _Stop(read)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in STOP_SIGNALS:
        signal.signal(number, stop.ask)
    try:
        yield stop
    finally:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)


def _warm_up(environ: Mapping[str, str], stop: _Stop, say_stopped: Callable[[], None]) -> None:
    began_at = time.monotonic()
    values = _checked(environ)
    secrets = hub_tokens(environ, values["hf_home"])
    print(f"warm-up of {values['pipeline_id']} into {values['hf_home']}", flush=True)
    print(f"Hub token: {'there is one' if secrets else 'none'}", flush=True)
    models = _load(environ, values["pipeline_path"], secrets, stop, say_stopped)
    stop.check()
    marker = marker_path(values["hf_home"], values["pipeline_id"])
    try:
        _leave(marker, models)
    except OSError as e:
        kind = Transient if no_room(e) else Permanent
        raise kind(STAGE, f"the warm-up marker {marker} cannot be written: {e.strerror or e}") from e
    took = f"{time.monotonic() - began_at:.0f}s"
    print(f"warm-up of {values['pipeline_id']} COMPLETE in {took}: {', '.join(models)}; marker: {marker}", flush=True)


def _checked(environ: Mapping[str, str]) -> dict[str, Any]:
    """The command's values.

    Raises:
        ConfigError: naming everything that is wrong.
    """
    values, problems = environment.read(environ, Command.WARMUP)
    if values["pipeline_path"] is not None:
        problem = unreadable(values["pipeline_path"])
        if problem:
            problems.append(f"PIPELINE_PATH={shown(values['pipeline_path'])}: {problem}")
    offline = environ.get("HF_HUB_OFFLINE", "")
    if offline.strip().lower() not in ONLINE:
        problems.append(f"HF_HUB_OFFLINE={shown(offline)}: a warm-up downloads; expected unset, 0, false, no or off")
    if problems:
        raise ConfigError(problems, STAGE)
    return values


def hub_tokens(environ: Mapping[str, str], hf_home: str) -> tuple[str, ...]:
    """The tokens that huggingface_hub would find, from the environment and from its token file."""
    found = [environ.get(name, "") for name in _TOKENS]
    path = Path(os.path.expandvars(environ.get("HF_TOKEN_PATH") or os.path.join(hf_home, "token"))).expanduser()
    with contextlib.suppress(OSError, UnicodeDecodeError):  # Then huggingface_hub does not find one either.
        found.append(path.read_text(encoding="utf-8"))
    cleaned = (token.replace("\r", "").replace("\n", "").strip() for token in found)  # As huggingface_hub does.
    return tuple(dict.fromkeys(filter(None, cleaned)))


def without(text: str, secrets: tuple[str, ...]) -> str:
    """`text` without the secrets, as they are and as a quoted string shows them."""
    for secret in secrets:
        for form in (secret, ascii(secret)[1:-1]):
            if len(form) >= _LEAST_SECRET:
                text = text.replace(form, "***")
    return text


def _load(
    environ: Mapping[str, str],
    pipeline: str,
    secrets: tuple[str, ...],
    stop: _Stop,
    say_stopped: Callable[[], None],
) -> list[str]:
    """Load every model in a process of its own; their names.

    Raises:
        Stopped, Permanent, Transient: as that process, or a signal, said.
    """
    read, write = os.pipe()
    with contextlib.ExitStack() as held:
        held.callback(os.close, read)
        try:
            directory = held.enter_context(tempfile.TemporaryDirectory(prefix="warmup-"))
            process = _spawn(environ, pipeline, directory, write)
        except OSError as e:
            raise Transient(STAGE, f"the loading process cannot be started: {e}") from e
        finally:
            os.close(write)
        try:
            said = _attend(process, read, secrets, stop)
        except Stopped:
            say_stopped()
            raise
        finally:
            _end(process)
    if not said:
        raise Transient(STAGE, f"the loading process {_ended_by(process.returncode)} before it was done")
    report = orjson.loads(said)
    if "error" in report:
        failure = Permanent if report["permanent"] else Transient
        raise failure(STAGE, for_log(without(report["error"], secrets)))
    return list(report["models"])


def _spawn(environ: Mapping[str, str], pipeline: str, directory: str, report: int) -> subprocess.Popen[bytes]:
    env = {name: value for name, value in environ.items() if name != "TRANSFORMERS_OFFLINE"}
    return subprocess.Popen(
        [sys.executable, "-m", "actors.gpu.warm", str(os.getpid()), str(report), pipeline, directory],
        env={**env, "HF_HUB_OFFLINE": "0", "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(report,),
        start_new_session=True,
    )


def _attend(process: subprocess.Popen[bytes], report: int, secrets: tuple[str, ...], stop: _Stop) -> bytes:
    """Pass the process's lines on, without secrets, until it has closed its report; the report."""
    assert process.stdout is not None
    output = process.stdout.fileno()
    open_fds, said, rest = {report, output}, b"", b""
    while report in open_fds or output in open_fds:
        ready, _, _ = select.select([*open_fds, stop.fd], [], [])
        stop.check()
        if report in ready:
            data = os.read(report, 65536)
            said += data
            if not data:
                open_fds.discard(report)
        if output in ready:
            data = os.read(output, 65536)
            *lines, rest = (rest + data).split(b"\n") if data else [rest, b""]
            for line in filter(None, lines):
                print(without(line.decode("utf-8", "replace"), secrets), file=sys.stderr, flush=True)
            if not data:
                open_fds.discard(output)
    return said


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and whatever it started. One that the kernel does not let go of is left behind."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILLED_S)
    assert process.stdout is not None
    process.stdout.close()


def _ended_by(status: int | None) -> str:
    if status == -signal.SIGKILL:
        return "was killed (by the kernel, if the container is out of memory)"
    if status is not None and status < 0:
        return f"died of {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _leave(marker: Path, models: list[str]) -> None:
    """Write the marker, whole or not at all."""
    marker.parent.mkdir(parents=True, exist_ok=True)
    partial = marker.with_name(f".{marker.name}.{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(f"{model}\n" for model in models)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(marker)
    except OSError:
        with contextlib.suppress(OSError):  # The first error is the one to tell.
            partial.unlink(missing_ok=True)
        raise
