"""What can be said of a pipeline file without htrflow or torch: its mistakes, and the digest of its recipe.

Pure functions over the file's text. What only htrflow knows (which steps and models there are, which
settings they take) is found when the pipeline is built.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

MODEL_STEPS = frozenset({"inference", "segmentation", "textrecognition"})
"""Steps that name a model, in lower case, as htrflow looks them up."""
PATH_SETTINGS = ("model", "processor", "source")
"""Settings that may hold a local path."""
MAX_BYTES = 1024 * 1024
"""A pipeline file has a few thousand bytes."""
_MAX_NODES, _MAX_DEPTH, _MAX_VALUE = 100_000, 100, 65_536
"""Of the YAML document with every alias followed, since it is walked recursively from here on, by htrflow too; and
characters of one value, since some numbers take the square of their length to read."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WEIGHTS = (".pt", ".pth", ".onnx", ".engine", ".safetensors", ".ckpt")
_STATIC_CACHES = ("static", "hybrid", "sliding_window")
_COMPILE_SETTINGS = ("compile", "torch_compile", "compile_config")


class PipelineError(Exception):
    """The pipeline file cannot work, whatever is tried: `problems` are sentences."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def check_pipeline(text: str, base: Path | None = None) -> list[str]:
    """Every mistake that the text alone shows, as sentences; empty when there is none.

    Relative model paths are looked for from `base` (the current directory by default).
    """
    try:
        steps = read_steps(text)
    except PipelineError as e:
        return e.problems
    problems = []
    for number, step in enumerate(steps, 1):
        problems += [f"step {number} ({step['step']}): {said}" for said in _step_problems(step, base or Path.cwd())]
    return problems


def read_text(path: Path) -> str:
    """The text of the pipeline file.

    Raises:
        PipelineError: it is too large, or no UTF-8 text.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    _refuse_large(data)
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise PipelineError(["the pipeline file is not UTF-8 text; store it as UTF-8"]) from e


def read_steps(text: str) -> list[dict[str, Any]]:
    """The pipeline's steps, each with a `step` name and `settings` (a dict, empty where the file has none).

    Raises:
        PipelineError: it is not YAML, is too large, has no list of steps, or a step has no name.
    """
    return [{**step, "settings": step.get("settings") or {}} for step in _written_steps(text)]


def recipe_digest(text: str) -> str:
    """sha256 (hex) of the canonical JSON of the parsed `steps`: keys sorted, no white space, UTF-8.

    Comments, key order and formatting do not count (batchpod/README.md, section 3).

    Raises:
        PipelineError: there are no steps to take it of.
    """
    steps = _written_steps(text)
    try:
        canonical = json.dumps(_plain(steps), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except ValueError as e:
        raise PipelineError([f"the pipeline file holds a value that cannot be written down: {_one_line(e)}"]) from e
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def relative_paths(steps: Iterable[Mapping[str, Any]], base: Path) -> list[Path]:
    """The relative paths in `steps` that exist, seen from `base`.

    The gpu process runs in a directory of its own, where htrflow would not find them.
    """
    values = (value for step in steps for key, value in _leaves(step["settings"], "") if key in PATH_SETTINGS)
    paths = [Path(value) for value in values if isinstance(value, str) and value]
    return [path for path in paths if not path.is_absolute() and os.path.exists(base / path)]


def _written_steps(text: str) -> list[dict[str, Any]]:
    """The steps as they are written, each with a name. Raises PipelineError."""
    _refuse_large(text.encode("utf-8", "surrogatepass"))
    try:
        _refuse_endless(text)
        parsed = yaml.load(text, Loader=_Loader)
    except PipelineError:
        raise
    except yaml.YAMLError as e:
        raise PipelineError([f"the pipeline file is not YAML: {_one_line(e)}"]) from e
    except Exception as e:  # The YAML loader converts values without looking whether it can.
        said = f"the pipeline file holds a value that is not what its tag or its form says: {type(e).__name__}"
        raise PipelineError([f"{said}: {_one_line(e)}"]) from e
    steps = parsed.get("steps") if isinstance(parsed, dict) else None
    if not isinstance(steps, list) or not steps:
        raise PipelineError(["the pipeline file has no list of steps (a top-level key `steps`)"])
    problems = [
        f"step {n} has no name, or settings that are no mapping"
        for n, step in enumerate(steps, 1)
        if not isinstance(step, dict)
        or not isinstance(step.get("step"), str)
        or not isinstance(step.get("settings") or {}, dict)
    ]
    if problems:
        raise PipelineError(problems)
    return steps


def _refuse_large(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise PipelineError([f"the pipeline file is larger than {MAX_BYTES} bytes; no pipeline is"])


def _refuse_endless(text: str) -> None:
    """Raise PipelineError where the document holds itself, is nested too deep, or is too large once aliases are
    followed. Seen from its events, which takes neither recursion nor memory."""
    nodes = 0
    sizes: dict[str | None, int | None] = {}  # Of what each anchor names; None while that is not at its end.
    begun: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor, 0)  # One that names nothing is the loader's to refuse.
            if size is None:
                raise PipelineError([f"the pipeline file holds itself: `*{event.anchor}` lies in `&{event.anchor}`"])
            nodes += size
        elif isinstance(event, yaml.NodeEvent):
            begins = isinstance(event, yaml.CollectionStartEvent)
            sizes[event.anchor] = None if begins else 1
            if begins:
                begun.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = begun.pop()
            sizes[anchor] = nodes - before
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > _MAX_VALUE:
            raise PipelineError([f"the pipeline file holds a value of more than {_MAX_VALUE} characters"])
        if nodes > _MAX_NODES:
            raise PipelineError([f"the pipeline file holds more than {_MAX_NODES} values, its aliases followed"])
        if len(begun) > _MAX_DEPTH:
            raise PipelineError([f"the pipeline file is nested more than {_MAX_DEPTH} deep"])


def _step_problems(step: Mapping[str, Any], base: Path) -> Iterator[str]:
    name, settings = step["step"].lower(), step["settings"]
    if name == "export":
        yield "ALTO and PAGE are written and stored without it; remove the step"
        return
    for key in ("model_settings", "generation_settings"):
        if not isinstance(settings.get(key) or {}, dict):
            yield f"`{key}` is no mapping"
            return
    model_settings = settings.get("model_settings") or {}
    if name in MODEL_STEPS:
        if not isinstance(settings.get("model"), str):
            yield "it names no model class (`model:`)"
        yield from _overridden_revisions(settings, model_settings)
    yield from _compilation(settings)
    for key in ("model", "processor"):
        path = model_settings.get(key, settings.get(key) if key == "processor" else None)
        if _is_path(path) and not os.path.exists(base / str(path)):
            yield f"the {key} {path} does not exist"
        elif _is_path(path) and ".." in Path(str(path)).parts:
            yield f"the {key} {path} must be named by its absolute path"


def _overridden_revisions(settings: Mapping[str, Any], model_settings: Mapping[str, Any]) -> Iterator[str]:
    """htrflow merges keys beside `model_settings` over those in it, so that a pinned revision there is
    lost."""
    for key, beside in settings.items():
        pinned = model_settings.get(key)
        if key in ("model", "model_settings", "generation_settings") or beside == pinned:
            continue
        if any(isinstance(v, str) and _COMMIT.fullmatch(v) for k, v in _leaves(pinned, key) if k == "revision"):
            yield f"`{key}` beside `model_settings` overrides the revision pinned there; remove one of them"


def _compilation(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in _leaves(settings, ""):
        if key == "cache_implementation" and isinstance(value, str) and any(c in value for c in _STATIC_CACHES):
            yield f"`{key}: {value}` asks for compilation, and there is no compiler; remove it"
        elif key in _COMPILE_SETTINGS and value not in (None, False, "", {}):
            yield f"`{key}` asks for compilation, and there is no compiler; remove it"


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and key not in _COMPILE_SETTINGS:
        for k, v in value.items():
            yield from _leaves(v, str(k))
    else:
        yield key, value


def _is_path(value: Any) -> bool:
    """Whether a setting means a place on disk: a Hub repository is `owner/name`, at most one slash."""
    if not isinstance(value, str) or "://" in value:
        return False
    return value.startswith(("/", ".", "~")) or value.count("/") > 1 or value.lower().endswith(_WEIGHTS)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
