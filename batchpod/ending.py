"""How a run ends: what must still be said and stored, in which order, and within which time.

A run that failed or was told to stop writes its termination message before anything slow, stops the fetcher and the
gpus at once, uploads what is exported already for at most 60 s, and keeps the last 20 s for progress.json, the debug
dump and the run log: 90 s in all, whatever the store does. What cannot be stored is said before the last line of the
log; nothing is said after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from actors.messages import Cease
from batchpod import advice
from batchpod.errors import Cause
from batchpod.flow.ledger import State
from batchpod.reporting import termination
from batchpod.verdict import ExitCode, Verdict

if TYPE_CHECKING:
    from batchpod.run import Run

log = logging.getLogger(__name__)

UPLOADS_S = 60.0
LAST_WORDS_S = 20.0
SUCCESS_LOG_S = 45.0
STOP_S = 6.0


class Ending:
    def __init__(self, run: Run) -> None:
        self._run = run

    def well(self) -> ExitCode:
        """Everything is published: store the last state, say so, stop the actors."""
        run = self._run
        run.ending = True
        run.gpus.close("the run is done", gently=False)
        run.fetcher.close("the run is done", gently=True)
        run.reporter.stage = "done"
        self._last_words(run.completed(), SUCCESS_LOG_S)
        run.uploader.close("the run is done", gently=True)
        self._wait(lambda: not run.loop.children, STOP_S)
        return ExitCode.OK

    def badly(self, verdict: Verdict) -> ExitCode:
        """The run failed or was told to stop."""
        run = self._run
        run.ending = True
        termination.write(run.config.termination_log_path, verdict)
        run.inspection.fails(verdict.error)
        run.gpus.close("the run is ending", gently=False)
        run.fetcher.close("the run is ending", gently=False)
        run.uploader.send(Cease())
        # What a gpu process had exported is known only once its last messages are taken.
        self._wait(lambda: all(child is run.uploader.child for child in run.loop.children), STOP_S)
        if verdict.cause is not Cause.STORE_DOWN:
            pending = (State.EXPORTED, State.UPLOADING)
            self._wait(lambda: not run.stream.ledger.count(*pending), UPLOADS_S)
        dump = run.inspection.write_dump()
        line = advice.failure(verdict, run.config.last_attempt)
        if run.reporter.stage == "config":
            run.loop.output.say_last(line)
        else:
            run.reporter.failed = True
            self._last_words(line, LAST_WORDS_S, dump)
        run.uploader.close("the run is ending", gently=False)
        self._wait(lambda: not run.loop.children, STOP_S)
        return verdict.code

    def _last_words(self, last_line: str, within_s: float, dump: str | None = None) -> None:
        """progress.json in its last state, the debug dump and the run log, then the log's last line.

        The log is shipped before that line, so that the line comes after the news that it cannot be, and again with it.
        """
        run = self._run
        begun_at = run.loop.clock.now()
        run.reporter.put_last_progress()
        if dump is not None:
            run.reporter.put_dump(dump)
        run.reporter.ship_log(final=True)
        self._wait(self._all_stored, within_s / 2)
        run.loop.output.say_last(last_line)
        run.reporter.ship_log(final=True)
        self._wait(self._all_stored, begun_at + within_s - run.loop.clock.now())

    def _all_stored(self) -> bool:
        return self._run.reporter.all_said or self._run.uploader.child is None

    def _wait(self, until: Callable[[], bool], within_s: float) -> None:
        clock = self._run.loop.clock
        begun_at = clock.now()
        while not until() and clock.now() - begun_at < within_s:
            try:
                self._run.turn()
            except Exception:  # Whatever it is, the rest of the end is still to be done.
                log.exception("a turn at the end of the run met an error")
