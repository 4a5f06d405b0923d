"""The uploader's dispatch loop: messages in, work onto threads, answers out.

Owns which thread does what and how the process ends; does not own what the work is. Page uploads, the volume-wide
operations and the run log never wait for one another; the loop itself does no I/O and beats once a second.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, assert_never

from actors import childlog, heap, s3
from actors.messages import (
    DEFERRED,
    FAILED,
    Cease,
    Clear,
    InterimPublished,
    ListStored,
    LogLevel,
    Publish,
    PublishInterim,
    PutDump,
    PutProgress,
    PutSource,
    ShipLog,
    Stop,
    StoreFailed,
    Upload,
    UploadFailed,
    UploadStarted,
    VerifyStored,
)
from actors.redact import for_log
from actors.room import no_room
from actors.specs import UploaderSpec
from actors.uploader import resume, validate
from actors.uploader.keys import Keys
from actors.uploader.publishing import Publishing
from actors.uploader.shipping import Run, Shipping
from actors.uploader.stamp import Provenance
from actors.uploader.store import Store
from actors.uploader.transfer import Transfer, discard
from actors.uploader.workers import Workers
from supervisor.queues import Channel
from supervisor.wire import bounded

log = logging.getLogger(__name__)

TURN_S = 0.5

Request = (
    Stop | LogLevel | PutSource | ListStored | Clear | Upload | PutProgress | ShipLog | PublishInterim
    | VerifyStored | Publish | PutDump | Cease
)  # fmt: skip


def main(channel: Channel, spec: UploaderSpec, descriptors: dict[str, int]) -> None:
    """Serve the supervisor until it says Stop, at most as long as that allows.

    Raises:
        EOFError: the supervisor is gone.
    """
    childlog.setup("uploader", spec.log_level, channel)
    heap.give_back_freed()
    if not spec.s3_verify_tls:
        log.warning("S3_VERIFY_TLS is off: the results store's certificate is not checked")
    uploader = Uploader(channel, spec)
    while uploader.ends_at is None:
        channel.marks.beat()
        if channel.wait(TURN_S):
            for message in channel.take():
                uploader.take(message)
    while not uploader.idle:
        channel.marks.beat()
        if time.monotonic() >= uploader.ends_at:
            log.warning("the time to finish uploads is over, what is left is given up")
            os._exit(0)
        time.sleep(0.02)


class Uploader:
    """One run's uploader. `take` is called from the dispatch loop and never blocks."""

    def __init__(self, channel: Channel, spec: UploaderSpec) -> None:
        self._channel, self._spec = channel, spec
        self._ceasing = threading.Event()
        keys = Keys(spec.prefix, spec.pipeline_id, spec.volume)
        threads = max(spec.upload_concurrency, resume.THREADS) + 1
        store, side = (Store(client, spec.bucket) for client in _clients(spec, threads))
        self._shipping = Shipping(side, keys, Run(spec.run_id, spec.attempt), spec.log_dir, channel.send)
        self._publishing = Publishing(store, keys, spec, self._ceasing.is_set)
        made_by = Provenance(spec.image_digest, spec.htrflow_base_revision, spec.batchpod_version)
        self._transfer = Transfer(
            store, keys, made_by, self._publishing.recipe.digest, self._ceasing.is_set, self._mark
        )
        validate.read_schemas()
        self._pages = Workers("upload", spec.upload_concurrency)
        self._documents = Workers("documents", 1)
        self.ends_at: float | None = None
        """The monotonic instant at which the process ends whatever is left to do; None until it was told to stop."""

    @property
    def idle(self) -> bool:
        return self._pages.idle and self._documents.idle and self._shipping.idle

    def take(self, message: Request) -> None:
        match message:
            case Upload():
                self._pages.put(lambda: self._upload(message))
            case PutProgress():
                self._shipping.put_progress(message.body)
            case ShipLog():
                self._shipping.ship_log(message.final)
            case PutDump():
                self._shipping.put_dump(message.path)
            case PutSource():
                self._operate(message, self._publishing.put_source)
            case ListStored():
                self._operate(message, self._publishing.list_stored)
            case Clear():
                self._operate(message, self._publishing.clear)
            case PublishInterim():
                self._operate(message, lambda: self._publishing.publish_interim(message.outcomes_path))
            case VerifyStored():
                self._operate(message, lambda: self._publishing.verify(message.outcomes_path))
            case Publish():
                self._operate(message, lambda: self._publishing.publish(message.outcomes_path))
            case LogLevel():
                childlog.set_level(message.level)
            case Cease():
                self._ceasing.set()
            case Stop():
                self._ceasing.set()
                self.ends_at = time.monotonic() + message.within_s
            case _:
                assert_never(message)

    def _upload(self, asked: Upload) -> None:
        self._channel.send(UploadStarted(asked.page))
        try:
            page = self._publishing.volume.pages[asked.page - 1]
            outcome = self._transfer.upload(asked, page.digest)
        except OSError as e:
            outcome = UploadFailed(asked.page, DEFERRED, _said("the workdir could not be read", e), False, False)
        except Exception as e:  # Whatever this page's files set off must not cost another page.
            log.exception("page %04d: its export could not be made ready", asked.page)
            outcome = UploadFailed(asked.page, FAILED, _said("its export cannot be published", e), False, False)
        self._channel.marks.clear(asked.page)
        self._channel.send(outcome)
        discard(asked)

    def _operate(self, message: Request, operation: Callable[[], Any]) -> None:
        self._documents.put(lambda: self._answer(message, operation))

    def _answer(self, message: Request, operation: Callable[[], Any]) -> None:
        """Do a volume-wide operation and send what it gives; nothing where the run ends meanwhile."""
        name = type(message).__name__
        ends = isinstance(message, Clear | Publish | PublishInterim)
        if ends and self._ceasing.is_set():
            return
        try:
            answer = operation()
        except s3.StoreError as e:
            answer = StoreFailed(name, e.permanent, bounded(str(e)))
        except Exception as e:
            full = no_room(e)
            if not full:
                log.exception("%s could not be done", name)
            what = f"the workdir is full: {name}" if full else name
            answer = StoreFailed(name, False, _said(f"{what} could not be done", e), full)
        if isinstance(answer, StoreFailed) and isinstance(message, PublishInterim):
            log.warning("iiif.json could not be republished, the run goes on: %s", answer.error)
            answer = InterimPublished(False, 0, 0.0)
        if answer is not None:
            self._channel.send(answer)

    def _mark(self, page: int, step: str) -> None:
        self._channel.marks.mark(page, "upload", step)


def _clients(spec: UploaderSpec, threads: int) -> tuple[Any, Any]:
    """One for the results and one for what waits for nothing. Where the AWS configuration cannot be used every request
    is answered with the reason: a process that died of it would be started in vain."""
    try:
        objects = functools.partial(s3.client, spec.s3_endpoint, of=s3.session(), verify_tls=spec.s3_verify_tls)
        return objects(connections=threads), objects(connections=1, connect_s=5, read_s=15, attempts=2)
    except s3.StoreError as e:
        return s3.NoClient(e), s3.NoClient(e)


def _said(what: str, error: Exception) -> str:
    return bounded(for_log(f"{what}: {type(error).__name__}: {error}"))
