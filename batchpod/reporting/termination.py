"""The termination message: what Kubernetes keeps of a run that did not succeed (batchpod/README.md, section 4)."""

from __future__ import annotations

import contextlib
import logging
import os

import orjson

from actors.redact import for_log
from batchpod.verdict import Verdict

MESSAGE_BYTES = 4000
"""The kubelet keeps 4,096 bytes and cuts the rest off, which would leave no JSON."""
ERROR_CHARACTERS = 3500
TRUNCATED = "...(truncated)"

log = logging.getLogger(__name__)


def body(stage: str, permanent: bool, error: str) -> bytes:
    """The message: one JSON object of at most MESSAGE_BYTES.

    The error is redacted, and where it is longer than ERROR_CHARACTERS, or than the bytes allow, it ends
    between two characters with `...(truncated)`.
    """
    text = for_log(error).encode("utf-8", "replace").decode("utf-8")

    def message(characters: int) -> bytes:
        clipped = text if len(text) <= characters else text[: characters - len(TRUNCATED)] + TRUNCATED
        return orjson.dumps({"stage": stage, "permanent": permanent, "error": clipped})

    fits, too_many = len(TRUNCATED), ERROR_CHARACTERS + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if len(message(middle)) <= MESSAGE_BYTES:
            fits = middle
        else:
            too_many = middle
    return message(fits)


def clear(path: str) -> None:
    """Take away what an earlier run left in a file at `path`: a run that ends well has no message."""
    with contextlib.suppress(OSError):
        if os.path.isfile(path) and os.path.getsize(path):
            os.truncate(path, 0)


def write(path: str, verdict: Verdict) -> None:
    """Write the message of a run that ends with `verdict`; a path that cannot be written is a warning.

    Never blocks: a pipe at `path` that nobody reads counts as a path that cannot be written.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, body(verdict.stage, verdict.permanent, verdict.error))
        finally:
            os.close(fd)
    except OSError as e:
        log.warning("the termination message cannot be written to %s: %s", path, e.strerror or e)
