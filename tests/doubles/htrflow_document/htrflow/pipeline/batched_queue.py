"""Items go in one by one and come out in batches, which may mix pages; an incomplete one leaves after some
patience."""

import queue
import threading
from concurrent.futures import Future
from typing import Any


class ItemWithFuture:
    def __init__(self, item: Any) -> None:
        self.item = item
        self.future: Future[Any] = Future()


class BatchedQueue:
    def __init__(self, batch_size: int, patience: float = 0.1) -> None:
        self.batch_size, self.patience = batch_size, patience
        self._in: queue.Queue[ItemWithFuture] = queue.Queue()
        self._out: queue.Queue[list[ItemWithFuture]] = queue.Queue()
        threading.Thread(target=self._process, daemon=True).start()

    def _process(self) -> None:
        while True:
            batch = [self._in.get()]
            while len(batch) < self.batch_size:
                try:
                    batch.append(self._in.get(timeout=self.patience))
                except queue.Empty:
                    break
            self._out.put(batch)

    def get(self, block: bool = True, timeout: float | None = None) -> list[ItemWithFuture]:
        return self._out.get(block, timeout)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> Future[Any]:
        entry = ItemWithFuture(item)
        self._in.put(entry, block, timeout)
        return entry.future
