"""One turn of a run's event loop: what has happened is told to whoever it concerns, then everything is looked after.

Owns the parts of a run and who hears what, and the questions that a stage waits for; in which order things are done is
run.py's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from actors.messages import Dying, ErrorLogged, Imported, Loaded, LoadFailed, ReadSource, SourceFailed
from actors.redact import for_log
from batchpod.crew import Crew, devices
from batchpod.errors import Cause, RunError, Stopped, Transient
from batchpod.flow.intake import DECODE_S
from batchpod.flow.outlet import STORE_S
from batchpod.flow.stream import Stream
from batchpod.gpus.aftermath import Verdicts
from batchpod.gpus.pool import Gpus
from batchpod.inspection.publisher import Inspection
from batchpod.memory.watch import MemoryWatch
from batchpod.questions import ANSWERS, Questions
from batchpod.reporting.reporter import Reporter
from batchpod.services import Service
from batchpod.settings.config import Config
from batchpod.workdir import Workdir
from supervisor.lifecycle import WITHIN_S, Life
from supervisor.loop import INBOX_STUCK_S, Ended, Happening, Loop, Said, Signalled, Stuck, Undying

T = TypeVar("T")
WATCH_S = 1.0


class Turning:
    """The parts of a run. `inspection` is set by the run itself."""

    inspection: Inspection

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        loop: Loop,
        workdir: Workdir,
        write_finished: Callable[[], str],
        *,
        terminal: bool,
    ) -> None:
        self.config, self.loop, self.workdir, self.terminal = config, loop, workdir, terminal
        self.crew = Crew(config, environ, workdir, run_id=uuid.uuid4().hex)
        self.fetcher = Service(loop, "fetcher", self.crew.fetcher, self._renew_fetcher, page_s=DECODE_S)
        self.uploader = Service(loop, "uploader", self.crew.uploader, self._renew_uploader, page_s=STORE_S)
        self.stream = Stream(config, loop, self.fetcher, self.uploader, self.say)
        feed = self.stream.feed
        verdicts = Verdicts(self.stream.register.fail, feed.run_alone, feed.run_again, feed.clear_blamed)
        self.gpus = feed.gpus = Gpus(loop, self.crew, devices(config.gpu_workers, environ), verdicts)
        self.reporter = Reporter(config, loop.clock, self.stream, self.uploader, write_finished)
        self.stopped_by = 0
        self.ending = False
        self._memory = MemoryWatch(loop, self.gpus, self.stream.intake)
        self._questions = Questions(config.s3_bucket)
        self.source_read = False
        self._watched_at = 0.0
        self._trouble: Exception | None = None

    # ----------------------------------------------------------------------------------------------------- the loop

    def pump(self, until: Any) -> None:
        """Turn the loop until `until()` is true."""
        while not until():
            self.turn()

    def turn(self) -> None:
        """One turn: hand out what can be handed out, wait, take what has happened, look after everything once a second.

        Raises:
            RunError: the run cannot go on, or was told to stop.
        """
        if not self.ending:
            self.stream.route()
        for happening in self.loop.turn(min(0.2 if self.terminal else WATCH_S, self.inspection.soonest_s)):
            try:
                self._take(happening)
            except RunError as e:
                e.stage = e.stage or self.reporter.stage
                self._trouble = self._trouble or e
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
                    counted = self.fetcher.closing or self.stream.intake.died()
                    self.fetcher.ended(child, exit_, counted=counted)
                elif child is self.uploader.child:
                    if not self.uploader.closing:
                        self.stream.outlet.died(self.uploader.stuck_page)
                    self.uploader.ended(child, exit_)
                else:
                    self.gpus.ended(child, exit_)
            case Undying(child=child, state=state):
                who = f"{child.name} (pid {child.pid}, state {state})"
                within_s = WITHIN_S[Life.KILLING]
                raise Transient("", f"{who} is not ended by SIGKILL within {within_s:g} s", Cause.UNKILLABLE)
            case Stuck(child=child):
                self.loop.dump_and_kill(child, f"it has not taken a message for {INBOX_STUCK_S:g} s")
            case Signalled(number=number):
                self.stopped_by = self.stopped_by or number

    def _hear(self, child: Any, message: Any) -> None:
        if isinstance(message, ErrorLogged):
            self.stream.counters.errors += message.count
        elif child is self.fetcher.child:
            if not isinstance(message, ANSWERS):
                self.stream.intake.hear(message)
            elif not self._questions.hear(self.fetcher, message) and isinstance(message, SourceFailed):
                raise Transient("", f"the new fetcher cannot read the page list: {message.error}")
        elif child is self.uploader.child:
            if isinstance(message, ANSWERS):
                self._questions.hear(self.uploader, message)
            elif not self.reporter.heard(message):
                self.stream.outlet.hear(message)
        elif isinstance(message, Imported):
            self.gpus.imported(child, message)
        elif (slot := self.gpus.slot_of(child)) is not None:
            match message:
                case Loaded():
                    self.gpus.loaded(slot, message)
                    names = ", ".join(message.models)
                    self.say(f"{slot.name} loaded {names} in {message.seconds:.1f} s, pages at once: {message.capacity}")
                case LoadFailed():
                    self.gpus.load_failed(slot, message)
                case Dying():
                    self.gpus.dying(slot, message)
                case _:
                    self.stream.feed.hear(slot, message)

    def _watch(self) -> None:
        if self.ending:
            return
        self.fetcher.watch()
        self.uploader.watch()
        try:
            self.gpus.watch()
        except RunError as e:
            self._trouble = self._trouble or e
        self._memory.look()

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
        self._questions.put(service, request, answer)
        self.pump(lambda: self._questions.answered)
        return self._questions.take(answer, self.reporter.stage)

    def _renew_fetcher(self) -> None:
        """A new fetcher reads the page list from its file, if it was written."""
        if self.source_read:
            self.fetcher.send(ReadSource(reuse=True))
        else:
            self._questions.again(self.fetcher)

    def _renew_uploader(self) -> None:
        self.reporter.uploader_renewed()
        self._questions.again(self.uploader)
        self.stream.outlet.again()

    def say(self, text: str) -> None:
        """One line of the run log, redacted where it is written."""
        self.loop.output.say(for_log(text))

    def count_error(self) -> None:
        self.stream.counters.errors += 1
