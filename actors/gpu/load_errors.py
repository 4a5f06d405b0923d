"""Whether a failed load is permanent (exit 13) or another attempt may succeed (exit 1): batchpod/README.md, section 3, load.

The libraries are not imported to ask: their exceptions are recognised by name, wherever they are in the
chain.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

from actors.gpu import device
from actors.gpu.engine import NoApi
from actors.gpu.pipeline_file import PipelineError
from actors.gpu.smoke import SmokeFailed
from actors.room import no_room

_HUB_SAYS_NO = frozenset({"RepositoryNotFoundError", "GatedRepoError", "DisabledRepoError", "RevisionNotFoundError"})
_NETWORK_PACKAGES = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3")
_UNREADABLE = re.compile(
    r"not a valid JSON file|Unable to load weights|PytorchStreamReader|unexpected EOF|corrupt"
    r"|invalid header|state_dict|size mismatch|[Ww]eights only load failed|meta tensor|not a (?:zip|valid) ",
)
_PERMANENT = (
    ImportError, AttributeError, LookupError, TypeError, ValueError, NotImplementedError, SyntaxError,
    AssertionError, EOFError, NoApi, PipelineError,
)  # fmt: skip
_PERMANENT_NAMES = frozenset({"UnpicklingError", "SafetensorError", "BadZipFile", "ValidationError"})


def is_permanent(error: BaseException) -> bool:
    """Whether trying again cannot help."""
    if isinstance(error, SmokeFailed):
        return error.fault is device.Fault.ORDINARY
    if device.fault_of(error) is not device.Fault.ORDINARY:
        return False
    if any(_names(e) & _HUB_SAYS_NO for e in device.chain(error)):
        return True
    if _UNREADABLE.search(str(error)):
        return True
    if isinstance(error, OSError) or any(_from_network(e) for e in device.chain(error)):
        return False
    return isinstance(error, _PERMANENT) or bool(_names(error) & _PERMANENT_NAMES)


def no_room_in(directory: Path, error: BaseException) -> bool:
    """Whether it came of a file below `directory` for which there is no room: a model cache may be full as well."""
    full = [e for e in device.chain(error) if isinstance(e, OSError) and no_room(e)]
    names = [Path(os.fsdecode(name)) for e in full for name in (e.filename, e.filename2) if isinstance(name, str | bytes)]
    return any(name.is_absolute() and name.is_relative_to(directory) for name in names)


def sentence(error: BaseException) -> str:
    """What went wrong, for people; with the libraries' versions where they may be the cause."""
    if isinstance(error, NoApi | PipelineError):
        return str(error)
    text = str(error) if isinstance(error, SmokeFailed) else f"the pipeline does not load: {device.in_words(error)}"
    if isinstance(error, SmokeFailed) or _UNREADABLE.search(text) or not isinstance(error, OSError):
        return f"{text} ({versions()})"
    return text


def versions() -> str:
    """`htrflow 0.2.6, torch …, transformers …, ultralytics …`, as far as installed."""
    found = []
    for package in ("htrflow", "torch", "transformers", "ultralytics"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _names(error: BaseException) -> set[str]:
    return {c.__name__ for c in type(error).__mro__}


def _from_network(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in _NETWORK_PACKAGES
