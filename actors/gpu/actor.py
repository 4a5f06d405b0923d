"""The gpu actor's dispatch loop: takes messages, starts the loader and the pages' threads, answers for them.

The main thread does nothing that can take long, so it beats once a second; imports, loading and pages have
threads of their own, which mark their progress themselves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from typing import NoReturn, assert_never

from actors import childlog
from actors.gpu import device, surroundings
from actors.gpu.engine import Engine
from actors.gpu.exports import WorkdirFull, remove_strays, write
from actors.gpu.loader import Loader
from actors.gpu.pixels import pixels_at
from actors.gpu.wraps import ModelFailed, Place, Watch
from actors.messages import (
    Dying,
    Exported,
    Load,
    LogLevel,
    PageFailed,
    PageStarted,
    Stop,
    Transcribe,
    page_name,
)
from actors.redact import for_log
from actors.room import no_room
from actors.specs import GpuSpec
from supervisor import arena
from supervisor.queues import Channel
from supervisor.wire import bounded

log = logging.getLogger(__name__)

BEAT_S = 1.0
SWITCH_S = 0.0005
"""A model's thread between two batches waits this long for the interpreter while another page is cut out or exported
(Python's own 5 ms at each of its locks leave the GPU idle 10 ms a page)."""
Order = Load | Transcribe | Stop | LogLevel


def main(channel: Channel, spec: GpuSpec, descriptors: dict[str, int]) -> None:
    """Run the gpu actor; its imports start at once, its models are loaded when `Load` comes."""
    childlog.setup("gpu", spec.log_level, channel)
    sys.setswitchinterval(SWITCH_S)
    surroundings.prepare(online=spec.online, processes=spec.processes)
    pixels = arena.view(descriptors["arena"], spec.arena_bytes, writable=False)
    Actor(channel, spec, pixels).run()


class Actor:
    """One incarnation."""

    def __init__(self, channel: Channel, spec: GpuSpec, pixels: memoryview) -> None:
        self._channel, self._pixels = channel, pixels
        self._watch = Watch(channel.marks, self._die)
        self._loader = Loader(channel, spec, self._watch)
        self._in_flight = 0
        self._lock = threading.Lock()
        self._stop_at: float | None = None

    def run(self) -> NoReturn:
        """Until the supervisor says stop, or is gone (EOFError)."""
        threading.Thread(target=self._loader.run, name="load", daemon=True).start()
        while not self._finished():
            self._channel.wait(BEAT_S)
            self._channel.marks.beat()
            for order in self._channel.take():
                self._obey(order)
            self._check_threads()
        _exit(0)

    def _obey(self, order: Order) -> None:
        match order:
            case Load():
                self._loader.orders.put(order)
            case Transcribe():
                self._begin(order)
            case Stop(within_s):
                self._stop_at = time.monotonic() + within_s
            case LogLevel(level):
                childlog.set_level(level)
            case _:
                assert_never(order)

    def _finished(self) -> bool:
        return self._stop_at is not None and (not self._in_flight or time.monotonic() >= self._stop_at)

    def _begin(self, order: Transcribe) -> None:
        """The message goes out before the page is touched: what follows may hang with the GIL held."""
        engine = self._loader.engine
        if engine is None:
            raise RuntimeError(f"page {page_name(order.page)} was sent before the models were loaded")
        self._channel.send(PageStarted(order.page))
        with self._lock:
            self._in_flight += 1
        threading.Thread(target=self._page, args=(engine, order), daemon=True).start()

    def _page(self, engine: Engine, order: Transcribe) -> None:
        began_at = time.monotonic()
        name = page_name(order.page)
        answer: Exported | PageFailed
        self._watch.enter(order.page)
        self._watch.at(Place("start"))
        try:
            exports = engine.transcribe(order.page, pixels_at(self._pixels, order.offset, order.width, order.height))
            size = write(self._loader.directory, name, exports)
            answer = Exported(order.page, size, len(exports.tree.text), time.monotonic() - began_at)
        except (Exception, SystemExit) as e:
            answer = self._failed(order.page, e)
        with contextlib.suppress(OSError):  # Where the directory itself is gone, the answer says so.
            remove_strays(self._loader.directory, name)
        with self._lock:
            self._in_flight -= 1
        self._channel.send(answer)
        self._channel.marks.clear(order.page)

    def _failed(self, page: int, error: BaseException) -> PageFailed:
        full = any(isinstance(e, WorkdirFull) or no_room(e) for e in device.chain(error))
        if isinstance(error, ModelFailed):
            fault, reason = error.failure.fault, str(error.failure)
        else:
            fault, reason = device.fault_of(error), f"{self._watch.place}: {device.in_words(error)}"
            where = "" if full else f"\n{device.traceback_text(error)}"
            log.warning("page %s: %s%s", page_name(page), reason, where)
        if fault is device.Fault.DEVICE:
            self._die(reason, True)
        out_of_memory = fault is device.Fault.OUT_OF_MEMORY
        return PageFailed(page, bounded(for_log(reason)), out_of_memory=out_of_memory, workdir_full=full)

    def _check_threads(self) -> None:
        dead = self._loader.engine.dead_threads() if self._loader.engine is not None else []
        if dead:
            self._die(
                f"the worker thread of {', '.join(dead)} has ended, and pages would wait for it for ever",
                False,
            )

    def _die(self, reason: str, device_error: bool) -> NoReturn:
        """End this process, from whatever thread, once the supervisor has been told why."""
        log.error("ending this process: %s", reason)
        try:
            self._channel.send(Dying(bounded(for_log(reason)), device_error))
        finally:
            _exit(1)


def _exit(status: int) -> NoReturn:
    """Without the interpreter's farewell, which waits for threads that may be inside a model."""
    logging.shutdown()
    os._exit(status)
