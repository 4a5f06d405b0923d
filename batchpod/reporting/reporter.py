"""What a run tells the outside while it goes on: progress.json, the interim viewer manifest, the run log's copies, the
live line or the minute line. Best effort: none of it ever fails a page.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable

from actors.messages import (
    DumpPut,
    InterimPublished,
    LogShipped,
    ProgressPut,
    PublishInterim,
    PutDump,
    PutProgress,
    ShipLog,
)
from batchpod.flow.ledger import State
from batchpod.flow.stream import Stream
from batchpod.reporting import terminal
from batchpod.reporting.progress import Cadence, Progress
from batchpod.services import Service
from batchpod.settings.config import Config
from supervisor.clock import Clock

log = logging.getLogger(__name__)

INTERIM_PAGES = 10
INTERIM_LEAST_S = 30.0
INTERIM_SHARE = 20.0
LIVE_S = 0.2
MINUTE_S = 60.0


class Reporter:
    """`write_outcomes` writes the finished pages to the outcomes file and returns its path."""

    def __init__(
        self, config: Config, clock: Clock, stream: Stream, uploader: Service, write_outcomes: Callable[[], str]
    ) -> None:
        self._config, self._clock, self._stream, self._uploader = config, clock, stream, uploader
        self._write_outcomes = write_outcomes
        self.started_at = clock.now()
        self._started_wall = time.time()
        self.stage = "config"
        self.failed = False
        self.viewer_published = False
        self.stream_at: float | None = None
        self._cadence = Cadence()
        self._shipped_at = clock.now()
        self._shipping = False
        self._finals = 0
        self._interim_at = clock.now()
        self._interim_s = 0.0
        self._interim_done = 0
        self._interim_waits = False
        self._minute_at = clock.now()
        self._live_at = 0.0

    # ------------------------------------------------------------------------------------------------ to the store

    def progress(self) -> Progress:
        ledger, stream = self._stream.ledger, self._stream
        progress = Progress(
            stage=self.stage,
            started_at=self._started_wall,
            pages_total=len(ledger),
            pages_done=ledger.count(State.OK, State.SKIPPED),
            pages_failed=ledger.count(State.FAILED),
            last_page=stream.last_page,
            last_error=stream.last_error,
            errors=stream.counters.errors,
            viewer_published=self.viewer_published,
        )
        return progress.failed() if self.failed else progress

    def put_progress(self) -> None:
        """Store progress.json if it changed and is due."""
        progress = self.progress()
        if self._cadence.due(progress, self._clock.now()):
            self._uploader.send(PutProgress(progress.body(time.time())))

    def put_last_progress(self) -> None:
        """Store the last state, however lately the one before was stored."""
        self._uploader.send(PutProgress(self.progress().body(time.time())))

    def put_dump(self, path: str) -> None:
        """Store the debug dump that lies at `path`."""
        self._uploader.send(PutDump(path))

    @property
    def all_said(self) -> bool:
        """Whether every final log was answered; a progress.json or debug dump that was sent before it is stored first."""
        return not self._finals

    def tick(self) -> None:
        """Whatever is due by now; called every turn."""
        if self.stage in ("config", "done") or self.failed:
            return
        self.put_progress()
        every_s = self._config.log_ship_s
        if every_s and not self._shipping and self._clock.now() - self._shipped_at >= every_s:
            self.ship_log(final=False)
        if self.stage == "stream":
            self._interim()

    def ship_log(self, *, final: bool) -> None:
        self._shipping, self._shipped_at = True, self._clock.now()
        self._finals += final
        self._uploader.send(ShipLog(final))

    def _interim(self) -> None:
        """Republish iiif.json every tenth finished page, but not so often that it costs more than a twentieth."""
        now = self._clock.now()
        done = self._stream.ledger.count(State.OK)
        wait_s = max(INTERIM_LEAST_S, INTERIM_SHARE * self._interim_s)
        if self._interim_waits or done // INTERIM_PAGES <= self._interim_done // INTERIM_PAGES:
            return
        if self._interim_done and now - self._interim_at < wait_s:
            return
        self._interim_at, self._interim_done = now, done
        try:
            path = self._write_outcomes()
        except OSError as e:
            log.warning("iiif.json is not republished now: %s", e)
            return
        self._interim_waits = True
        self._uploader.send(PublishInterim(path))

    def heard(self, message: object) -> bool:
        """Take the uploader's answers to the above; false if it is none."""
        match message:
            case ProgressPut() | DumpPut():
                return True
            case LogShipped(final=final):
                self._shipping = False
                self._finals -= final
                return True
            case InterimPublished(ok=ok, seconds=seconds):
                self._interim_waits, self._interim_s = False, seconds
                self.viewer_published = self.viewer_published or ok
                return True
        return False

    def uploader_renewed(self) -> None:
        """A new uploader knows nothing of what was asked of the old one."""
        self._shipping = self._interim_waits = False
        self._cadence = Cadence()
        if self._finals:
            self._finals = 0
            self.ship_log(final=True)

    # ------------------------------------------------------------------------------------------------ to the person

    def standing(self) -> terminal.Standing:
        ledger = self._stream.ledger
        elapsed_s = self._clock.now() - self.started_at
        processed = ledger.count(State.OK)
        streaming_s = self._clock.now() - self.stream_at if self.stream_at else 0.0
        return terminal.Standing(
            volume=self._config.volume_ref,
            stage=self.stage,
            elapsed_s=elapsed_s,
            total=len(ledger),
            done=ledger.count(State.OK, State.SKIPPED),
            failed=ledger.count(State.FAILED),
            deferred=ledger.count(State.DEFERRED),
            pages_per_second=processed / streaming_s if processed and streaming_s > 0 else 0.0,
        )

    def live_line(self) -> str | None:
        """The live line for a terminal, if it is time for one."""
        now = self._clock.now()
        if now - self._live_at < LIVE_S:
            return None
        self._live_at = now
        return terminal.live_line(self.standing(), shutil.get_terminal_size().columns)

    def minute_line(self) -> str | None:
        """The summary line of a pod, once a minute."""
        now = self._clock.now()
        if now - self._minute_at < MINUTE_S:
            return None
        self._minute_at = now
        return terminal.minute_line(self.standing())
