"""How a run ends other than well: one small tree, permanent and transient at its root.

Owns the exceptions and their causes; the exit codes are verdict.py's, the sentences for people advice.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


class Cause(StrEnum):
    """What ended a run, where the one who ends it knows; it picks the sentence of the final line
    (advice.py).
    """

    UNKNOWN = "unknown"
    """advice.py looks at the stage and the error's text instead."""
    CONFIG = "config"
    WORKDIR_IN_USE = "workdir in use"
    BUCKET = "bucket"
    STORE_DOWN = "store down"
    ORIGIN_DOWN = "origin down"
    WORKDIR_FULL = "workdir full"
    MEMORY = "memory"
    GPU_START = "gpu start"
    GPU_BROKEN = "gpu broken"
    UNKILLABLE = "unkillable"
    ACTOR_RESTARTS = "actor restarts"
    PAGES_LEFT = "pages left"
    NO_IMAGES = "no images"
    NO_PAGES = "no pages"
    ALL_FAILED = "all failed"
    TEXT_LOST = "text lost"
    STOPPED = "stopped"
    UNEXPECTED = "unexpected"


class RunError(Exception):
    """A run cannot go on. `stage` is where (batchpod/README.md, section 3), `error` what, in one plain sentence."""

    def __init__(self, stage: str, error: str, cause: Cause = Cause.UNKNOWN) -> None:
        super().__init__(error)
        self.stage = stage
        self.error = error
        self.cause = cause


class Permanent(RunError):
    """Another attempt would end the same way: exit 13."""


class Transient(RunError):
    """Another attempt may succeed: exit 1."""


class Stopped(RunError):
    """The pod was told to stop: exit 143."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage, "SIGTERM", Cause.STOPPED)


class ConfigError(Permanent):
    """The environment does not describe a run (or what else `stage` is of); `problems` holds every one of them, each
    naming its variable.
    """

    def __init__(self, problems: Sequence[str], stage: str = "config") -> None:
        super().__init__(stage, "; ".join(problems), Cause.CONFIG)
        self.problems = tuple(problems)
