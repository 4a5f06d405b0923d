"""One run of one volume: the stages, from top to bottom.

`Run.stages` is the story. Owns the order of things; what happens in between is turning.py's, pages are stream.py's,
processes pool.py's and services.py's, the end ending.py's.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

import orjson

from actors.messages import (
    Clear,
    Cleared,
    ListStored,
    Publish,
    Published,
    PutSource,
    ReadSource,
    SourcePut,
    SourceRead,
    StoredListed,
    StoredVerified,
    VerifyStored,
    page_name,
)
from actors.runlog import RunLog
from batchpod import advice
from batchpod.ending import Ending
from batchpod.errors import Cause, Permanent, RunError, Transient
from batchpod.flow.ledger import State
from batchpod.gpus.slots import Phase
from batchpod.inspection.publisher import Inspection
from batchpod.reporting import termination
from batchpod.reporting.console import captured, logging_to
from batchpod.reporting.outcomes import Outcomes
from batchpod.settings.config import Config, arena_problem
from batchpod.turning import Turning
from batchpod.verdict import Tally, Verdict, after_verify, verdict_of
from batchpod.workdir import Workdir
from supervisor.clock import Clock
from supervisor.events import Events
from supervisor.loop import Loop
from supervisor.memory import Cgroup

FAILED_NAMED = 20


def run(config: Config, environ: Mapping[str, str] | None = None) -> int:
    """Process the volume that `config` describes; the exit code of the program."""
    workdir = Workdir(config.workdir_path)
    try:
        problem = arena_problem(config, Cgroup().read())
        if problem is not None:
            raise Permanent("config", problem, Cause.CONFIG)
        workdir.claim()
        termination.clear(config.termination_log_path)
        return _run(config, dict(environ or os.environ), workdir)
    except RunError as e:
        verdict = verdict_of(e, "config")
        termination.write(config.termination_log_path, verdict)
        print(advice.failure(verdict), flush=True)
        return int(verdict.code)
    finally:
        workdir.release()


def _run(config: Config, environ: Mapping[str, str], workdir: Workdir) -> int:
    runlog = RunLog(workdir.log)
    try:
        with captured(runlog) as (output, own, terminal):
            clock, events = Clock(), Events(lambda text: output.say(f"{time.strftime('%H:%M:%S')} {text}"))
            # Once the loop has ended the exit code is known, and a signal changes nothing.
            with Loop(clock, events, output, handler_after=signal.SIG_IGN) as loop:
                loop.add_source(own)
                this = Run(config, environ, loop, workdir, terminal=terminal)
                with logging_to(output.say, this.count_error), this.inspection.served():
                    return this.go()
    finally:
        runlog.close()


class Run(Turning):
    """The stages, over the turns of turning.py."""

    def __init__(
        self, config: Config, environ: Mapping[str, str], loop: Loop, workdir: Workdir, *, terminal: bool
    ) -> None:
        super().__init__(config, environ, loop, workdir, self._write_finished, terminal=terminal)
        self.inspection = Inspection(self)
        cache = config.image_cache_bucket if config.image_cache_bucket != config.s3_bucket else None
        self._outcomes = Outcomes(self.stream, self.gpus, cache)

    # --------------------------------------------------------------------------------------------------- the stages

    def go(self) -> int:
        """Run every stage, and end in order whatever happens; the exit code."""
        ending = Ending(self)
        try:
            self.stages()
            code = ending.well()
        except Exception as e:
            verdict = verdict_of(e, self.reporter.stage)
            if verdict.cause is Cause.UNEXPECTED:
                self.loop.output.say("".join(traceback.format_exception(e)).rstrip())
            code = ending.badly(verdict)
        finally:
            self.crew.close()
        return int(code)

    def stages(self) -> None:
        """config is done; everything else, in order."""
        self.fetcher.start()
        self.uploader.start()
        self.gpus.start()
        self.setup()
        left, complete = self.resume()
        if left:
            self.load()
            self.stream_pages()
        if left or not complete:
            self.verify()
            self.publish()

    def setup(self) -> None:
        """The page list, from the manifest or the image list."""
        self._enter("setup")
        read = self.ask(self.fetcher, ReadSource(), SourceRead)
        self.source_read = True
        self.stream.register.begin(read.count)
        note = f" (the first {read.count} of {read.total}, MAX_PAGES)" if read.total > read.count else ""
        self.say(f"[{self.config.volume_ref}] {read.count} pages in manifest{note}")
        if self.config.images:
            self.ask(self.uploader, PutSource(), SourcePut)

    def resume(self) -> tuple[int, bool]:
        """Which pages are stored already. Gives the number left, and whether the volume is complete as it is."""
        self._enter("resume")
        listed = self.ask(self.uploader, ListStored(), StoredListed)
        ledger = self.stream.ledger
        ledger.skip(int(number) for number in orjson.loads(Path(self.workdir.done).read_bytes())["done"])
        left = ledger.unfinished
        self.say(f"[{self.config.volume_ref}] resume: {listed.done} done, {left} to process")
        return left, listed.complete

    def load(self) -> None:
        """The models, while the first pages are being downloaded. What is to be redone goes from the store once they can
        redo it, and before they do: a run that never gets so far leaves the volume as it was."""
        self._enter("load")
        self.stream.started = True
        self.gpus.load()
        self.pump(lambda: any(slot.phase is Phase.READY for slot in self.gpus.slots))
        self.ask(self.uploader, Clear(), Cleared)
        self.stream.feed.open = True

    def stream_pages(self) -> None:
        """Every page to its outcome."""
        self._enter("stream")
        self.reporter.stream_at = self.loop.clock.now()
        self.pump(lambda: self.stream.over)
        self.stream.stalls.stop(self.loop.clock.now())
        if (line := self._outcomes.image_cache_line(self.config.volume_ref)) is not None:
            self.say(line)

    def verify(self) -> None:
        """Nothing is believed that the store does not list."""
        self._enter("verify")
        self.gpus.close("all pages are done", gently=True)
        self.fetcher.close("all pages are done", gently=True)
        self._write_outcomes(*State)
        self.ask(self.uploader, VerifyStored(self.workdir.outcomes), StoredVerified)
        missing = orjson.loads(Path(self.workdir.missing).read_bytes())["missing"]
        ledger = self.stream.ledger
        verdict = after_verify(
            Tally(
                total=len(ledger),
                ok=ledger.count(State.OK),
                skipped=ledger.count(State.SKIPPED),
                failed={p.number: p.reason for p in ledger.each(State.FAILED)},
                deferred={p.number: p.reason for p in ledger.each(State.DEFERRED)},
                missing=missing,
                troubles=self.stream.register.troubles,
                last_attempt=self.config.last_attempt,
                origin_down=self.stream.origin_down,
            )
        )
        if isinstance(verdict, Verdict):
            error = Permanent if verdict.permanent else Transient
            raise error(verdict.stage, verdict.error, verdict.cause)
        for number, reason in verdict.failed.items():
            self.stream.register.fail(number, reason)

    def publish(self) -> None:
        """The viewer manifest, the recipe and, last, the completion marker."""
        self._enter("publish")
        self._write_outcomes(*State)
        published = self.ask(self.uploader, Publish(self.workdir.outcomes), Published)
        self.reporter.viewer_published = published.viewer
        failed = self.stream.ledger.numbers(State.FAILED)
        if failed:
            named = ", ".join(page_name(number) for number in failed[:FAILED_NAMED])
            more = ", …" if len(failed) > FAILED_NAMED else ""
            self.say(f"{len(failed)} of {len(self.stream.ledger)} pages failed, their reasons are in manifest.json: {named}{more}")

    def _enter(self, stage: str) -> None:
        self.reporter.stage = stage
        self.loop.events.note("stage", f"stage {stage}")

    # -------------------------------------------------------------------------------------------------- small things

    def _wall_s(self) -> float:
        return self.loop.clock.now() - self.reporter.started_at

    def _write_outcomes(self, *states: State) -> str:
        return self._outcomes.write(self.workdir.outcomes, self._wall_s(), *states)

    def _write_finished(self) -> str:
        return self._outcomes.write(self.workdir.path("interim.json"), self._wall_s(), State.OK, State.SKIPPED)

    def completed(self) -> str:
        """The last line of a run that went well."""
        ledger = self.stream.ledger
        processed = len(ledger) - ledger.count(State.SKIPPED)
        return advice.complete(self.config.volume_ref, len(ledger), processed, self._wall_s(), self.config.viewer_url)
