"""The process of a warm-up that loads a pipeline's models once, on the CPU, from the Hub.

Started as `python -m actors.gpu.warm PARENT_PID REPORT_FD PIPELINE DIRECTORY`. Its one answer is a JSON object on
REPORT_FD: `{"models": [names]}`, or `{"permanent": bool, "error": sentence}`. Speaks to no supervisor.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import orjson
import yaml

from actors import childlog
from actors.gpu import device, engine, hub, load_errors, loader, pipeline_file, steps, surroundings
from actors.gpu.wraps import Watch
from actors.room import no_room
from supervisor import marks
from supervisor.child import bind_to_parent

log = logging.getLogger(__name__)

_DEVICE_SETTINGS = ("device", "device_map")


def main(parent_pid: int, report: int, pipeline: Path, directory: Path) -> NoReturn:
    """Load, answer, and leave without the interpreter's farewell, which waits for the models' threads."""
    bind_to_parent(parent_pid)
    os.set_inheritable(report, False)
    childlog.setup("gpu", "INFO", None)
    surroundings.prepare(online=True)
    cut_off = hub.unreached()
    if cut_off:
        log.warning("%s: only what is in the cache can be loaded", cut_off)
    answer: dict[str, Any]
    try:
        answer = {"models": load(pipeline, directory)}
    except (Exception, SystemExit) as e:
        if not isinstance(e, pipeline_file.PipelineError):
            log.warning("%s", device.traceback_text(e))
        answer = {"permanent": is_permanent(e), "error": load_errors.sentence(e)}
        if cut_off and not isinstance(e, pipeline_file.PipelineError):
            answer = {"permanent": False, "error": f"{cut_off}; {answer['error']}"}
    _write_all(report, orjson.dumps({k: _unicode(v) for k, v in answer.items()}))
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def load(pipeline: Path, directory: Path) -> list[str]:
    """Load every model of the pipeline; their names. `directory` becomes the current one. The surroundings are prepared.

    Raises:
        PipelineError: the file's own mistakes.
        Exception: whatever htrflow and its models raise.
    """
    _, adapter = engine.choose()
    surroundings.quiet()
    moved = directory / "pipeline.yaml"
    moved.write_text(on_cpu(pipeline_file.read_text(pipeline)), encoding="utf-8")
    built = loader.build(adapter, moved, directory, Watch(marks.MarkWriter(marks.create()), _die), 1)
    return [steps.label_of(step) for step in built.steps if getattr(step, "model", None) is not None]


def on_cpu(text: str) -> str:
    """The pipeline file with each device that it names replaced by the CPU; unchanged if it is not one."""
    try:
        pipeline_file.read_steps(text)
    except pipeline_file.PipelineError:
        return text
    return yaml.safe_dump(_moved(yaml.safe_load(text)), sort_keys=False, allow_unicode=True)


def _moved(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: "cpu" if k in _DEVICE_SETTINGS and v is not None else _moved(v) for k, v in value.items()}
    return [_moved(v) for v in value] if isinstance(value, list) else value


def is_permanent(error: BaseException) -> bool:
    """As for any load; but whatever came of a full or read-only disk may go better in another attempt."""
    causes = [e for e in device.chain(error) if isinstance(e, OSError)]
    return load_errors.is_permanent(error) and not any(no_room(e) or e.errno == errno.EROFS for e in causes)


def _unicode(value: Any) -> Any:
    """JSON holds no lone surrogates, which an error's text may."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _write_all(fd: int, data: bytes) -> None:
    with open(fd, "wb") as file:
        file.write(data)


def _die(reason: str, _device_error: bool) -> NoReturn:
    raise RuntimeError(reason)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
