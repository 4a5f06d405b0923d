"""The queue that hands a page's images to a model in batches of that page only."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.gpu.batches import Item, OnePageQueue
from actors.gpu.wraps import Place, Watch
from supervisor import marks as progress

PLACE = Place("TextRecognition", "reader")
END = (-1, 0)


def never(reason: str, device_error: bool) -> NoReturn:
    raise AssertionError(reason)


class Rig:
    """A queue with a model thread that notes its batches and answers each image with itself."""

    def __init__(self, batch_size: int) -> None:
        self.fd = progress.create()
        self.reader = progress.MarkReader(self.fd)
        self.writer = progress.MarkWriter(self.fd)
        self.watch = Watch(self.writer, never)
        self.queue = OnePageQueue(batch_size, PLACE, self.watch)
        self.batches: list[list[tuple[int, int]]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.model = threading.Thread(target=self._model)
        self.model.start()

    def _model(self) -> None:
        while True:
            batch = self.queue.get()
            self.hold.wait()
            images = [entry.item for entry in batch]
            if images == [END]:
                batch[0].future.set_result(END)
                return
            self.batches.append(images)
            self._answer(batch)

    def _answer(self, batch: list[Item]) -> None:
        for entry in batch:
            entry.future.set_result(entry.item)

    def run(self, page: int, images: int) -> list[tuple[int, int]]:
        """What a step's `run` does for a page."""
        self.watch.enter(page)
        self.queue.expect(page, images)
        try:
            futures = [self.queue.put((page, n)) for n in range(images)]
            return [future.result(30) for future in as_completed(futures, 30)]
        finally:
            self.queue.leave(page)

    def close(self) -> None:
        self.hold.set()
        self.watch.enter(999)
        self.queue.expect(999, 1)
        self.queue.put(END)
        self.model.join(30)
        self.watch.enter(0)
        self.reader.close()
        self.writer._map.close()
        os.close(self.fd)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(4)
    yield rig
    rig.close()


@settings(max_examples=25)
@given(st.lists(st.integers(1, 11), min_size=1, max_size=6), st.integers(1, 5))
def test_batches_hold_one_page_cut_in_order_whatever_runs_beside_it(pages: list[int], batch_size: int) -> None:
    rig = Rig(batch_size)
    try:
        with ThreadPoolExecutor(len(pages)) as pool:
            results = list(pool.map(rig.run, range(1, len(pages) + 1), pages))
    finally:
        rig.close()
    for page, images in enumerate(pages, 1):
        everything = [(page, n) for n in range(images)]
        assert sorted(results[page - 1]) == everything
        mine = [batch for batch in rig.batches if batch[0][0] == page]
        assert mine == [everything[at : at + batch_size] for at in range(0, images, batch_size)]


def test_the_last_batch_leaves_at_once_when_its_page_has_put_everything(rig: Rig) -> None:
    assert len(rig.run(1, 1)) == 1
    assert rig.batches == [[(1, 0)]]


def wait_for(rig: Rig, page: int, inside: bool) -> progress.Mark:
    for _ in range(10000):
        found = [m for m in rig.reader.tasks() if m.task == page and m.inside is inside]
        if found:
            return found[0]
        threading.Event().wait(0.001)
    raise AssertionError(f"page {page} is not {'inside' if inside else 'waiting'}: {rig.reader.tasks()}")


def test_the_marks_say_which_page_is_inside_the_model_and_which_waits(rig: Rig) -> None:
    rig.hold.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(rig.run, 1, 2)
        assert wait_for(rig, 1, inside=True).thread == rig.model.ident
        second = pool.submit(rig.run, 2, 2)
        waiting = wait_for(rig, 2, inside=False)
        assert waiting.thread != rig.model.ident
        assert (waiting.step, waiting.detail) == ("TextRecognition", "reader waited for")
        rig.hold.set()
        assert len(first.result(30)) == len(second.result(30)) == 2


def test_a_page_that_waits_is_marked_again_when_the_model_finishes_another(rig: Rig) -> None:
    rig.hold.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(rig.run, 1, 8)
        wait_for(rig, 1, inside=True)
        second = pool.submit(rig.run, 2, 1)
        before = wait_for(rig, 2, inside=False).counter
        rig.hold.set()
        first.result(30), second.result(30)
    assert wait_for(rig, 2, inside=True).counter > before + 1


def test_what_a_failed_page_still_had_waiting_never_reaches_the_model(rig: Rig) -> None:
    rig.hold.clear()
    rig.watch.enter(7)
    rig.queue.expect(7, 12)
    for n in range(12):
        rig.queue.put((7, n))
    wait_for(rig, 7, inside=True)
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(rig.queue.leave, 7)
        assert not leaving.done()
        rig.hold.set()
        leaving.result(30)
    assert len(rig.run(8, 3)) == 3
    assert [batch[0] for batch in rig.batches] == [(7, 0), (8, 0)]
