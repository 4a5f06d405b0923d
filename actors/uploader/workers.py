"""A few daemon threads that take work from one queue.

Daemon threads, unlike an executor's, do not hold the process back at its end: a store that never answers must not.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

Work = Callable[[], None]


class Workers:
    """`count` threads; `idle` once all that was put is done."""

    def __init__(self, name: str, count: int) -> None:
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open = 0
        for number in range(count):
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True).start()

    @property
    def idle(self) -> bool:
        return self._open == 0

    def put(self, work: Work) -> None:
        """Have `work` done. It answers for its own errors; one that gets out is logged."""
        with self._lock:
            self._open += 1
        self._queue.put(work)

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            try:
                work()
            except BrokenPipeError:
                log.warning("the supervisor is gone, an answer goes nowhere")
            except Exception:
                log.exception("a worker thread met an error that its work did not answer for")
            finally:
                with self._lock:
                    self._open -= 1
