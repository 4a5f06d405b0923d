"""progress.json: what it says and when it is written (batchpod/README.md, section 6).

Pure: the clock is passed in. Storing it is the uploader's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import orjson

from actors.messages import page_name
from actors.redact import for_log

FAILED_STAGE = "failed"
LAST_ERROR_CHARACTERS = 300
EVERY_S = 1.0


def utc_seconds(at: float) -> str:
    """A wall-clock instant (seconds since the epoch) as it is published."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Progress:
    """A run as progress.json shows it. `pages_done` is ok + skipped; `started_at` is wall-clock.

    `last_page` is the page with the newest outcome, `last_error` the newest failed or deferred page and its
    reason; both None before there is one. `errors` counts records of level ERROR and above in all processes.
    """

    stage: str
    started_at: float
    pages_total: int = 0
    pages_done: int = 0
    pages_failed: int = 0
    last_page: int | None = None
    last_error: tuple[int, str] | None = None
    errors: int = 0
    viewer_published: bool = False

    def failed(self) -> Progress:
        """The same on an exit that is not a success."""
        return replace(self, stage=FAILED_STAGE)

    def body(self, updated_at: float) -> str:
        """The JSON document; `updated_at` is wall-clock."""
        error = None
        if self.last_error is not None:
            page, reason = self.last_error
            text = for_log(reason).encode("utf-8", "replace").decode("utf-8")
            error = {"page": page_name(page), "error": text[:LAST_ERROR_CHARACTERS]}
        document = {
            "stage": self.stage,
            "pages_total": self.pages_total,
            "pages_done": self.pages_done,
            "pages_failed": self.pages_failed,
            "last_page": None if self.last_page is None else page_name(self.last_page),
            "last_error": error,
            "errors": self.errors,
            "viewer_published": self.viewer_published,
            "started_at": utc_seconds(self.started_at),
            "updated_at": utc_seconds(updated_at),
        }
        return orjson.dumps(document).decode()


class Cadence:
    """Decides when a changed state is written: a new stage at once, else once in EVERY_S, the last state
    always.
    """

    def __init__(self) -> None:
        self._written: Progress | None = None
        self._written_at = 0.0
        self._waiting = False

    def due(self, progress: Progress, now: float) -> bool:
        """Whether `progress` is to be written now (it then counts as written). `now` is monotonic."""
        before = self._written
        if progress == before:
            self._waiting = False
            return False
        staged = before is None or before.stage != progress.stage
        if not staged and now < self._written_at + EVERY_S:
            self._waiting = True
            return False
        self._written, self._written_at, self._waiting = progress, now, False
        return True

    def due_at(self) -> float | None:
        """When a state that was held back may be written: ask `due` again then. None: nothing is held
        back.
        """
        return self._written_at + EVERY_S if self._waiting else None
