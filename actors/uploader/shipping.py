"""The run log, progress.json and the debug dump: best effort, on a thread and a client of their own.

So a page's upload never waits for them nor they for it. What waits is replaced by what is newer; what could not be
done is given up, and said once until it works again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from actors import runlog
from actors.messages import DumpPut, LogShipped, ProgressPut
from actors.s3 import Forbidden, MissingObject, StoreError
from actors.uploader.keys import JSON, TEXT, Keys
from actors.uploader.store import Store

log = logging.getLogger(__name__)

DUMP_BYTES = 1024 * 1024
RUN_ID, ATTEMPT = "run-id", "attempt"


@dataclass(frozen=True, slots=True)
class Run:
    """Whose log it is."""

    run_id: str
    attempt: str


class Shipping:
    """Takes requests from the dispatch loop (none of them blocks) and works them off on one daemon thread.

    Answers go to `send`: one ProgressPut and one DumpPut a PUT, one LogShipped a shipment; requests that a newer one
    replaced get none, except that a final shipment always has its own, after those of what was asked for before it.
    """

    def __init__(self, store: Store, keys: Keys, run: Run, log_dir: str, send: Callable[[object], None]) -> None:
        self._store, self._keys, self._run, self._log_dir, self._send = store, keys, run, log_dir, send
        self._copy = runlog.ShippedCopy(log_dir)
        self._wake = threading.Condition()
        self._progress: str | None = None
        self._ship: int | None = None
        """How many final shipments are asked for; 0 for an ordinary one, None for none at all."""
        self._dump: str | None = None
        self._claim = True
        self._busy = False
        self._shipped: tuple[int, int] | None = None
        self._foreign = self._blind = False
        self._lost: set[str] = set()
        threading.Thread(target=self._run_forever, name="shipping", daemon=True).start()

    @property
    def idle(self) -> bool:
        with self._wake:
            return not self._busy and not self._waiting()

    def put_progress(self, body: str) -> None:
        with self._wake:
            self._progress = body
            self._wake.notify()

    def ship_log(self, final: bool) -> None:
        with self._wake:
            self._ship = (self._ship or 0) + final
            self._wake.notify()

    def put_dump(self, path: str) -> None:
        with self._wake:
            self._dump = path
            self._wake.notify()

    def _waiting(self) -> bool:
        return self._claim or self._progress is not None or self._ship is not None or self._dump is not None

    def _run_forever(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.wait_for(self._waiting)
                self._busy = True
                claim, self._claim = self._claim, False
                progress, self._progress = self._progress, None
                ship, self._ship = self._ship, None
                dump, self._dump = self._dump, None
            self._work_off(claim, progress, dump, ship)

    def _work_off(self, claim: bool, progress: str | None, dump: str | None, ship: int | None) -> None:
        """The log comes last, so that a final one tells of the others."""
        if claim:
            self._attempt("run log", self._claim_log)
        if progress is not None:
            self._send(ProgressPut(self._attempt("progress.json", lambda: self._put_progress(progress))))
        if dump is not None:
            self._send(DumpPut(self._attempt("debug dump", lambda: self._put_dump(dump))))
        if ship is not None:
            shipped = self._attempt("run log", self._ship_log)
            for final in [True] * ship or [False]:
                self._send(LogShipped(final, shipped))

    def _attempt(self, what: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except (StoreError, OSError) as e:
            if what not in self._lost:
                log.warning("the %s could not be stored, the run goes on: %s", what, e)
            self._lost.add(what)
            return False
        except Exception:  # A fault of ours here must not take the log with it.
            log.exception("the %s could not be stored, the run goes on", what)
            return False
        self._lost.discard(what)
        return True

    def _claim_log(self) -> None:
        """The log is this run's from now on, whoever's was there; once a run, not once a process."""
        if not self._claimed:
            self._put_log()
            Path(self._log_dir, "claimed").write_text(self._run.run_id)

    @property
    def _claimed(self) -> bool:
        claimed = Path(self._log_dir, "claimed")
        return claimed.exists() and claimed.read_text() == self._run.run_id

    def _ship_log(self) -> None:
        """Ship what changed, unless the log has become another run's: a pod that replaces this one has begun."""
        if not self._claimed:
            self._claim_log()
        if self._foreign or runlog.fingerprint(self._log_dir) == self._shipped:
            return
        owner = self._owner()
        if owner not in (None, self._run.run_id):
            self._foreign = True
            log.warning("the run log is another run's by now (%s) and is left to it", owner)
            return
        self._put_log()

    def _owner(self) -> str | None:
        """Whose log is stored. None: nobody's, or these credentials may only write and it was this run's at last."""
        try:
            return self._store.head(self._keys.run_log).get(RUN_ID)
        except MissingObject:
            return None
        except Forbidden as e:
            if not self._blind:
                log.warning("whose the stored run log is cannot be told, it is taken for this run's: %s", e)
            self._blind = True
            return None

    def _put_log(self) -> None:
        seen = runlog.fingerprint(self._log_dir)
        body = self._copy.take() or f"[the log of run {self._run.run_id} begins]\n".encode()
        carried = {RUN_ID: self._run.run_id, ATTEMPT: self._run.attempt}
        self._store.put(self._keys.run_log, body, TEXT, metadata=carried)
        self._shipped = seen

    def _put_progress(self, body: str) -> None:
        self._store.put(self._keys.progress, body.encode(), JSON, cache_control="no-store")

    def _put_dump(self, path: str) -> None:
        body = Path(path).read_bytes()
        if len(body) > DUMP_BYTES:
            raise OSError(f"it has {len(body)} bytes; {DUMP_BYTES} are stored at most")
        self._store.put(self._keys.dump, body, JSON)
