"""One run of one volume: the stages, from top to bottom, over one event loop.

`Run.stages` is the story; `Run.turn` is the loop's one turn. Owns the order of things and the answers that a stage
waits for; pages are stream.py's, processes gpus.py's and services.py's, the end ending.py's.
"""

from __future__ import annotations

import os
import time
import traceback
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson

from actors.messages import (
    Clear,
    Cleared,
    Dying,
    ErrorLogged,
    Imported,
    ListStored,
    Loaded,
    LoadFailed,
    Publish,
    Published,
    PutSource,
    ReadSource,
    SourceFailed,
    SourcePut,
    SourceRead,
    StoredListed,
    StoredVerified,
    StoreFailed,
    VerifyStored,
)
from actors.redact import for_log
from actors.runlog import RunLog
from batchpod import advice, outcomes, termination
from batchpod.config import Config, arena_problem
from batchpod.console import captured, logging_to
from batchpod.crew import Crew, devices
from batchpod.ending import Ending
from batchpod.errors import Cause, Permanent, RunError, Stopped, Transient
from batchpod.gpus import Gpus, Phase, Verdicts
from batchpod.guard import Guard, Relief
from batchpod.inspection import Inspection
from batchpod.ledger import State
from batchpod.reporter import Reporter
from batchpod.services import Service
from batchpod.stream import Stream
from batchpod.verdict import Tally, Verdict, after_verify, verdict_of
from batchpod.workdir import Workdir
from supervisor.clock import Clock
from supervisor.events import Events
from supervisor.loop import Ended, Happening, Loop, Said, Signalled, Stuck, Undying
from supervisor.memory import Cgroup

T = TypeVar("T")
WATCH_S = 1.0


def run(config: Config, environ: Mapping[str, str] | None = None) -> int:
    """Process the volume that `config` describes; the exit code of the program."""
    workdir = Workdir(config.workdir_path)
    try:
        problem = arena_problem(config, Cgroup().read())
        if problem is not None:
            raise Permanent("config", problem, Cause.CONFIG)
        workdir.claim()
    except RunError as e:
        verdict = verdict_of(e, "config")
        termination.write(config.termination_log_path, verdict)
        print(advice.failure(verdict), flush=True)
        return int(verdict.code)
    runlog = RunLog(workdir.log)
    try:
        with captured(runlog) as (output, own, terminal):
            clock, events = Clock(), Events(lambda text: output.say(f"{time.strftime('%H:%M:%S')} {text}"))
            with Loop(clock, events, output) as loop:
                loop.add_source(own)
                this = Run(config, dict(environ or os.environ), loop, workdir, terminal=terminal)
                with logging_to(output.say, this.count_error), this.inspection.served():
                    return this.go()
    finally:
        runlog.close()
        workdir.release()


class Run:
    def __init__(
        self, config: Config, environ: Mapping[str, str], loop: Loop, workdir: Workdir, *, terminal: bool
    ) -> None:
        self.config, self.loop, self.workdir, self.terminal = config, loop, workdir, terminal
        self.crew = Crew(config, environ, workdir, run_id=uuid.uuid4().hex)
        self.fetcher = Service(loop, "fetcher", self.crew.fetcher, self._renew_fetcher)
        self.uploader = Service(loop, "uploader", self.crew.uploader, self._renew_uploader)
        self.stream = Stream(config, loop, self.fetcher, self.uploader, self.say)
        verdicts = Verdicts(self.stream.fail, self.stream.run_alone, self.stream.run_again, self.stream.defer_blamed)
        self.gpus = Gpus(loop, self.crew, devices(config.gpu_workers, environ), verdicts)
        self.stream.gpus = self.gpus
        self.reporter = Reporter(config, loop.clock, self.stream, self.uploader, self._write_finished)
        self.inspection = Inspection(self)
        self.stopped_by = 0
        self.ending = False
        self._cgroup, self._guard = Cgroup(), Guard()
        self._source_read = False
        self._asked: Any = None
        self._answer: Any = None
        self._watched_at = 0.0
        self._trouble: Exception | None = None

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
        self._source_read = True
        self.stream.begin(read.count)
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
        if left:
            self.ask(self.uploader, Clear(), Cleared)
        return left, listed.complete

    def load(self) -> None:
        """The models, while the first pages are being downloaded."""
        self._enter("load")
        self.stream.started = True
        self.gpus.load()
        self.pump(lambda: any(slot.phase is Phase.READY for slot in self.gpus.slots))

    def stream_pages(self) -> None:
        """Every page to its outcome."""
        self._enter("stream")
        self.reporter.stream_at = self.loop.clock.now()
        self.pump(lambda: self.stream.over)
        self.stream.stalls.stop(self.loop.clock.now())
        self._image_cache_line()

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
                text_lost=self.stream.text_lost,
                last_attempt=self.config.last_attempt,
                origin_down=self.stream.origin_down,
            )
        )
        if isinstance(verdict, Verdict):
            error = Permanent if verdict.permanent else Transient
            raise error(verdict.stage, verdict.error, verdict.cause)
        for number, reason in verdict.failed.items():
            self.stream.fail(number, reason)

    def publish(self) -> None:
        """The viewer manifest, the recipe and, last, the completion marker."""
        self._enter("publish")
        self._write_outcomes(*State)
        published = self.ask(self.uploader, Publish(self.workdir.outcomes), Published)
        self.reporter.viewer_published = published.viewer

    def _enter(self, stage: str) -> None:
        self.reporter.stage = stage
        self.loop.events.note("stage", f"stage {stage}")

    # ----------------------------------------------------------------------------------------------------- the loop

    def pump(self, until: Any) -> None:
        """Turn the loop until `until()` is true."""
        while not until():
            self.turn()

    def turn(self) -> None:
        """One turn: wait, take what has happened, hand out what can be handed out, look after everything once a second.

        Raises:
            RunError: the run cannot go on, or was told to stop.
        """
        for happening in self.loop.turn(min(0.2 if self.terminal else WATCH_S, self.inspection.soonest_s)):
            try:
                self._take(happening)
            except RunError as e:
                e.stage = e.stage or self.reporter.stage
                self._trouble = self._trouble or e
        if not self.ending:
            self.stream.route()
        if self.loop.clock.now() - self._watched_at >= WATCH_S:
            self._watched_at = self.loop.clock.now()
            self._watch()
            self.inspection.publish()
        self.inspection.tend()
        self.reporter.tick()
        self._show()
        if not self.ending:
            if self._trouble is not None:
                raise self._trouble
            if self.stopped_by:
                raise Stopped(self.reporter.stage)

    def _take(self, happening: Happening) -> None:
        match happening:
            case Said(child=child, message=message):
                self._hear(child, message)
            case Ended(child=child, exit=exit_):
                self.inspection.note_exit(child, exit_)
                if child is self.fetcher.child:
                    counted = self.stream.fetcher_died()
                    self.fetcher.ended(child, exit_, counted=counted)
                elif child is self.uploader.child:
                    self.stream.uploader_died()
                    self.uploader.ended(child, exit_)
                else:
                    self.gpus.ended(child, exit_)
            case Undying(child=child, state=state):
                text = f"{child.name} (pid {child.pid}, state {state}) is not ended by SIGKILL within 30 s"
                raise Transient("", text, Cause.UNKILLABLE)
            case Stuck(child=child):
                for service in (self.fetcher, self.uploader):
                    if service.child is child:
                        service.stuck()
                        return
                self.loop.dump_and_kill(child, "it has not taken a message for 60 s")
            case Signalled(number=number):
                self.stopped_by = self.stopped_by or number

    def _hear(self, child: Any, message: Any) -> None:
        if isinstance(message, ErrorLogged):
            self.stream.counters.errors += message.count
        elif child is self.fetcher.child:
            if isinstance(message, SourceRead | SourceFailed):
                self._answered(self.fetcher, message)
            else:
                self.stream.on_fetcher(message)
        elif child is self.uploader.child:
            if self.reporter.heard(message):
                return
            if isinstance(message, SourcePut | StoredListed | Cleared | StoredVerified | Published | StoreFailed):
                self._answered(self.uploader, message)
            else:
                self.stream.on_uploader(message)
        elif isinstance(message, Imported):
            self.gpus.imported(child, message)
        elif (slot := self.gpus.slot_of(child)) is not None:
            match message:
                case Loaded():
                    self.gpus.loaded(slot, message)
                    names = ", ".join(message.models)
                    self.say(f"{slot.name} loaded {names} in {message.seconds:.1f} s, {message.capacity} pages at once")
                case LoadFailed():
                    self.gpus.load_failed(slot, message)
                case Dying():
                    self.gpus.dying(slot, message)
                case _:
                    self.stream.on_gpu(slot, message)

    def _watch(self) -> None:
        if self.ending:
            return
        self.fetcher.watch()
        self.uploader.watch()
        try:
            self.gpus.watch()
        except RunError as e:
            self._trouble = self._trouble or e
        relief = self._guard.judge(self._cgroup.read(), self.loop.clock.now())
        if relief is not None:
            self._relieve(relief)

    def _relieve(self, relief: Relief) -> None:
        """Give memory back, or end before the kernel does it."""
        memory = self._cgroup.read()
        share = f"{100 * memory.fraction:.0f} % of the memory limit" if memory else "the memory limit"
        self.loop.events.note("memory", f"{share} is in use: {relief}")
        match relief:
            case Relief.DROP_STANDBY:
                self.gpus.drop_standby("memory is short")
            case Relief.SHRINK_LOOKAHEAD:
                self.stream.lookahead_pages = max(4, self.stream.lookahead_pages // 4)
            case Relief.RECYCLE_GPU:
                for slot in self.gpus.slots:
                    self.gpus.recycle(slot, "memory is short")
            case Relief.END_RUN:
                raise Transient("", f"{share} is in use", Cause.MEMORY)

    def _show(self) -> None:
        if self.terminal and (line := self.reporter.live_line()):
            self.loop.output.live(line)
        elif not self.terminal and (line := self.reporter.minute_line()):
            self.say(line)

    # ------------------------------------------------------------------------------------------ questions and answers

    def ask(self, service: Service, request: object, answer: type[T]) -> T:
        """Send a request and turn the loop until its answer is there (asked again if the actor dies meanwhile).

        Raises:
            Permanent, Transient: the actor says that it cannot be done.
        """
        self._asked, self._answer = (service, request, answer), None
        service.send(request)
        self.pump(lambda: self._answer is not None)
        self._asked, got = None, self._answer
        match got:
            case SourceFailed(permanent=permanent, error=error):
                raise (Permanent if permanent else Transient)(self.reporter.stage, error)
            case StoreFailed(permanent=permanent, error=error):
                cause = Cause.BUCKET if permanent else Cause.UNKNOWN
                error = f"bucket {self.config.s3_bucket}: {error}"
                raise (Permanent if permanent else Transient)(self.reporter.stage, error, cause)
        assert isinstance(got, answer)
        return got

    def _answered(self, service: Service, message: Any) -> None:
        """Take an answer, if it is to what was asked last (a restarted actor may answer twice)."""
        if self._asked is None or self._asked[0] is not service:
            return
        _, request, answer = self._asked
        refused = isinstance(message, StoreFailed) and message.operation == type(request).__name__
        if refused or isinstance(message, answer | SourceFailed):
            self._answer = message

    def _renew_fetcher(self) -> None:
        """A new fetcher reads the page list from its file, if it was written."""
        if self._source_read:
            self.fetcher.send(ReadSource(reuse=True))
        elif self._asked is not None and self._asked[0] is self.fetcher:
            self.fetcher.send(self._asked[1])

    def _renew_uploader(self) -> None:
        self.reporter.uploader_renewed()
        if self._asked is not None and self._asked[0] is self.uploader:
            self.uploader.send(self._asked[1])
        self.stream.uploads_again()

    # -------------------------------------------------------------------------------------------------- small things

    def say(self, text: str) -> None:
        """One line of the run log, redacted where it is written."""
        self.loop.output.say(for_log(text))

    def count_error(self) -> None:
        self.stream.counters.errors += 1

    def _facts(self) -> dict[str, Any]:
        wall_s = self.loop.clock.now() - self.reporter.started_at
        return outcomes.run_facts(self.stream, self.gpus, wall_s, self.config.image_cache_bucket)

    def _write_outcomes(self, *states: State) -> str:
        outcomes.write(self.workdir.outcomes, self.stream.ledger, self._facts(), *states)
        return self.workdir.outcomes

    def _write_finished(self) -> str:
        path = self.workdir.path("interim.json")
        outcomes.write(path, self.stream.ledger, self._facts(), State.OK, State.SKIPPED)
        return path

    def _image_cache_line(self) -> None:
        c, bucket = self.stream.counters, self.config.image_cache_bucket
        if bucket:
            text = f"{c.cache_hits} hits, {c.cache_misses} misses, {c.cache_stored} stored"
            self.say(f"[{self.config.volume_ref}] image cache {bucket}: {text}")

    def completed(self) -> str:
        """The last line of a run that went well."""
        ledger, wall_s = self.stream.ledger, self.loop.clock.now() - self.reporter.started_at
        processed = len(ledger) - ledger.count(State.SKIPPED)
        return advice.complete(self.config.volume_ref, len(ledger), processed, wall_s, self.config.viewer_url)
