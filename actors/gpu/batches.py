"""The batch queue that takes the place of each model step's own in htrflow's document API.

A batch holds images of one page only, cut in the order they were put, and the last one leaves when its page
has put everything. So there is no patience to wait for, a page's text is the same whatever runs beside it
(a batch's images are padded to one another), and the marks say exactly which page is inside the model and
which ones wait.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from actors.gpu.wraps import Batch, Place, Watch


class Item:
    """An image and the future of its result; htrflow's model thread reads both."""

    __slots__ = ("future", "item")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.future: Future[Any] = Future()


@dataclass(slots=True)
class _Visit:
    """One page's passage through the step."""

    images: int
    batches: int
    thread: int
    put: int = 0
    cut: int = 0
    inside: bool = False
    loose: list[Item] = field(default_factory=list)


class OnePageQueue:
    """Batches of at most `batch_size` images. Pages put from their own threads, one model thread gets."""

    def __init__(self, batch_size: int, place: Place, watch: Watch) -> None:
        self.batch_size = max(1, batch_size)
        self._place, self._watch = place, watch
        self._visits: dict[int, _Visit] = {}
        self._ready: deque[tuple[Batch, list[Item]]] = deque()
        self._changed = threading.Condition()
        self._in_hand: int | None = None

    def expect(self, page: int, images: int) -> None:
        """The calling thread will put exactly `images` images of `page`."""
        with self._changed:
            batches = -(-images // self.batch_size)
            self._visits[page] = _Visit(images, batches, threading.get_ident())

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> Future[Any]:
        """Add an image of the page that the calling thread works for; never waits."""
        page = self._watch.page
        entry = Item(item)
        with self._changed:
            visit = self._visits[page]
            visit.loose.append(entry)
            visit.put += 1
            if len(visit.loose) == self.batch_size or visit.put == visit.images:
                visit.cut += 1
                self._ready.append((Batch(page, visit.cut, visit.batches), visit.loose))
                visit.loose = []
                self._changed.notify_all()
            if visit.put == visit.images and not visit.inside:
                self._mark(page, visit)
        return entry.future

    def get(self, block: bool = True, timeout: float | None = None) -> list[Item]:
        """The next batch, waited for; the batch that was got before counts as finished from here on."""
        with self._changed:
            self._finish()
            while not self._ready:
                self._watch.enter(0)
                self._changed.wait()
            batch, items = self._ready.popleft()
            self._visits[batch.page].inside = True
            self._in_hand = batch.page
            self._watch.enter(batch.page)
            self._watch.take(self._place, batch)
        return items

    def leave(self, page: int) -> None:
        """`page` is done with this step, also after an error: what it still had waiting is dropped.

        Waits for a batch of it that is inside the model, so that afterwards nothing in this step works for
        it.
        """
        with self._changed:
            self._ready = deque(entry for entry in self._ready if entry[0].page != page)
            visit = self._visits[page]
            while visit.inside:
                self._changed.wait()
            del self._visits[page]

    def _finish(self) -> None:
        """A batch finished: progress for the pages that wait for this model too, which is seen to be
        alive."""
        if self._in_hand is None:
            return
        self._visits[self._in_hand].inside = False
        waiting = {batch.page for batch, _ in self._ready}
        if self._visits[self._in_hand].put < self._visits[self._in_hand].images:
            waiting.add(self._in_hand)
        for page in waiting:
            self._mark(page, self._visits[page])
        self._in_hand = None
        self._changed.notify_all()

    def _mark(self, page: int, visit: _Visit) -> None:
        """No batch of `page` is in the model: it waits, or its own thread still cuts out its images."""
        cutting = visit.put < visit.images
        detail = "images cut out" if cutting else "waited for"
        self._watch.mark(page, self._place, detail, inside=cutting, thread=visit.thread)
