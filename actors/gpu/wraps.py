"""Small wraps around htrflow's objects: around each model's `_predict` and around each step's `run`.

They beat the heartbeat from the thread that does the work, and keep an exception inside a model from
costing more than its own page: the model's thread, the pipeline and the loaded models live on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, NoReturn

from actors.gpu import device
from actors.messages import page_name
from supervisor.marks import MarkWriter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """A step of the pipeline and the short name of its model (empty where it has none)."""

    step: str
    model: str = ""

    def __str__(self) -> str:
        return f"{self.step} ({self.model})" if self.model else self.step


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch a thread has in hand: whose page, and which of how many of that page in that step."""

    page: int
    number: int
    total: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception inside a model, reduced to text: its traceback would hold tensors, locks and the page."""

    place: Place
    error: str
    fault: device.Fault

    def __str__(self) -> str:
        return f"{self.place}: {self.error}"


class ModelFailed(Exception):
    """Raised where a page reads the result of an image on which its model raised."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class FailedResult:
    """Stands for the result of an image whose model raised; raises that when the image's own page reads it.

    The document API iterates over a result, the collection API rescales it first.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure = failure

    def __iter__(self) -> Iterator[Any]:
        raise ModelFailed(self.failure)

    def rescale(self, factor: float) -> NoReturn:
        raise ModelFailed(self.failure)


class Watch:
    """Which page and batch each thread works on, and the marks that say so to the supervisor.

    `die` ends the process after saying why: called where a CUDA error has made its context unusable.
    """

    def __init__(self, marks: MarkWriter, die: Callable[[str, bool], NoReturn]) -> None:
        self._marks, self.die = marks, die
        self._here = threading.local()

    def enter(self, page: int) -> None:
        """The calling thread works for `page` from now on (0: for none)."""
        self._here.page, self._here.place, self._here.batch = page, Place("start"), None
        threading.current_thread().name = f"page {page_name(page)}" if page else "idle"

    @property
    def page(self) -> int:
        return getattr(self._here, "page", 0)

    @property
    def place(self) -> Place:
        return getattr(self._here, "place", Place("start"))

    @property
    def batch(self) -> Batch:
        return getattr(self._here, "batch", None) or Batch(self.page, 1, 1)

    def at(self, place: Place, detail: str = "") -> None:
        """The calling thread's page has come to `place`."""
        self._here.place = place
        self.mark(self.page, place, detail)

    def take(self, place: Place, batch: Batch) -> None:
        """The calling thread has `batch` in hand and goes into the model."""
        self._here.page, self._here.place, self._here.batch = batch.page, place, batch
        self.mark(batch.page, place, f"{batch.number}/{batch.total}")

    def mark(self, page: int, place: Place, detail: str, *, inside: bool = True, thread: int | None = None) -> None:
        said = " ".join(part for part in (place.model, detail) if part)
        self._marks.mark(page, place.step, said, inside=inside, thread=thread)


def wrap_predict(model: Any, place: Place, watch: Watch, batch_of: Callable[[], Batch]) -> None:
    """Guard `model._predict(images, **settings)`, which returns one result per image.

    Where it raises, the images are tried one at a time, and the result of one that raises is a
    `FailedResult`. `batch_of` tells the batch that the calling thread has in hand.
    """
    original = model._predict

    def guarded(images: list[Any], **settings: Any) -> list[Any]:
        batch = batch_of()
        watch.take(place, batch)
        results, failure = _attempt(original, images, settings, place, watch)
        if failure is not None:
            results = _one_by_one(original, images, settings, failure, place, watch)
        watch.mark(batch.page, place, f"{batch.number}/{batch.total} done", inside=False)
        return results

    model._predict = guarded


def _one_by_one(
    predict: Any, images: list[Any], settings: dict[str, Any], failure: Failure, place: Place, watch: Watch
) -> list[Any]:
    if failure.fault is device.Fault.OUT_OF_MEMORY:
        device.give_memory_back()
    if len(images) == 1:
        return [FailedResult(failure)]
    results: list[Any] = []
    batch = watch.batch
    for number, image in enumerate(images, 1):
        watch.mark(batch.page, place, f"{batch.number}/{batch.total} image {number}/{len(images)} alone")
        alone, failed = _attempt(predict, [image], settings, place, watch)
        results += alone if failed is None else [FailedResult(failed)]
        if failed is not None and failed.fault is device.Fault.OUT_OF_MEMORY:
            device.give_memory_back()
    return results


def _attempt(
    predict: Any, images: list[Any], settings: dict[str, Any], place: Place, watch: Watch
) -> tuple[list[Any], Failure | None]:
    """The results, or the failure as text. Nothing of the exception outlives this call: a suspended
    generator in its traceback would keep the model's own lock, and the next call would wait for it for
    ever."""
    try:
        results = predict(images, **settings)
        if isinstance(results, Sized) and len(results) != len(images):
            raise RuntimeError(f"the model returned {len(results)} results for {len(images)} images")
        return results, None
    except Exception as e:
        fault = device.fault_of(e)
        failure = Failure(place, device.in_words(e), fault)
        whose = f"page {page_name(watch.page)}: " if watch.page else ""
        log.warning("%s%s raised on a batch of %d\n%s", whose, place, len(images), device.traceback_text(e))
    if failure.fault is device.Fault.DEVICE:
        watch.die(str(failure), True)
    return [], failure


def wrap_step(step: Any, run: Callable[[Any], Any], place: Place, watch: Watch) -> None:
    """Beat the heartbeat where `step` begins and ends; `run` is what it does (its own `run`, perhaps
    wrapped)."""

    def watched(work: Any) -> Any:
        watch.at(place)
        result = run(work)
        watch.at(place, "done")
        return result

    step.run = watched
