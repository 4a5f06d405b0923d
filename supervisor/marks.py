"""Progress marks: a small shared page of memory in which a child says what it is doing.

The working thread itself writes them, never a helper thread, so that a thread that hangs shows as one; reading them
needs nothing from the watched process, so a held GIL or a sleep in a driver is seen all the same.

Layout: a header (received messages, dispatch-loop beat) and a fixed number of slots, one a task in flight. A slot is
guarded by a sequence number that is odd while it is being written; a reader that meets an odd or changed number tries
again, and takes what it has after a few tries (the writer may have been killed in between).
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from dataclasses import dataclass

HEADER = struct.Struct("=QQd")
SLOT = struct.Struct("=QQqQBxxxxxxxd64s128s")
SLOT_BYTES = 256
HEADER_BYTES = 64
SLOTS = 60
SIZE_BYTES = HEADER_BYTES + SLOTS * SLOT_BYTES

IDLE, WAITING, INSIDE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Mark:
    """One task in flight, as last written by its thread.

    `task` is the caller's number (a page), `counter` rises with every sign of progress, `inside` is true while the
    thread is in work of its own (false while it waits for another), `at` is `time.monotonic()` of the last sign,
    `thread` the ident of the thread that does the work, `step` and `detail` short names.
    """

    slot: int
    task: int
    counter: int
    inside: bool
    at: float
    thread: int
    step: str
    detail: str


def create() -> int:
    """A new anonymous page of marks; returns its descriptor (closed on exec unless passed on)."""
    fd = os.memfd_create("marks", os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE_BYTES)
    return fd


class MarkWriter:
    """The child's side. Each slot has one writing thread at a time; taking and freeing slots is thread-safe."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, SIZE_BYTES)
        self._received = 0
        self._beats = 0
        self._counters = [0] * SLOTS
        self._sequence = [0] * SLOTS
        self._free = list(range(SLOTS - 1, -1, -1))
        self._slots: dict[int, int] = {}
        self._lock = threading.Lock()

    def received(self, count: int = 1) -> None:
        """Count messages taken from the inbox; the supervisor's credit follows this number."""
        self._received += count
        struct.pack_into("=Q", self._map, 0, self._received)

    def beat(self) -> None:
        """The dispatch loop has turned."""
        self._beats += 1
        struct.pack_into("=Qd", self._map, 8, self._beats, time.monotonic())

    def mark(self, task: int, step: str = "", detail: str = "", *, inside: bool = True, thread: int | None = None) -> None:
        """Note progress of `task`: it is in `step` (64 bytes) with `detail` (128 bytes), inside or waiting.

        `thread` is the ident of the thread that does the work; by default the calling one. A 61st task in flight is
        not marked.
        """
        with self._lock:
            slot = self._slots.get(task)
            if slot is None:
                if not self._free:
                    return
                slot = self._slots[task] = self._free.pop()
            self._counters[slot] += 1
            self._write(slot, task, INSIDE if inside else WAITING, thread or threading.get_ident(), step, detail)

    def clear(self, task: int) -> None:
        """`task` is no longer in flight."""
        with self._lock:
            slot = self._slots.pop(task, None)
            if slot is not None:
                self._write(slot, -1, IDLE, 0, "", "")
                self._free.append(slot)

    def _write(self, slot: int, task: int, state: int, thread: int, step: str, detail: str) -> None:
        offset = HEADER_BYTES + slot * SLOT_BYTES
        self._sequence[slot] += 1
        struct.pack_into("=Q", self._map, offset, self._sequence[slot])
        self._sequence[slot] += 1
        SLOT.pack_into(
            self._map, offset, self._sequence[slot], self._counters[slot], task, thread, state, time.monotonic(),
            _field(step, 64), _field(detail, 128),
        )  # fmt: skip


class MarkReader:
    """The supervisor's side."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, SIZE_BYTES, prot=mmap.PROT_READ)

    def close(self) -> None:
        self._map.close()

    @property
    def received(self) -> int:
        """Messages the child has taken from its inbox."""
        return int(struct.unpack_from("=Q", self._map, 0)[0])

    @property
    def beat(self) -> tuple[int, float]:
        """Turns of the dispatch loop so far, and the monotonic time of the last (0.0 before the first)."""
        count, at = struct.unpack_from("=Qd", self._map, 8)
        return int(count), float(at)

    def tasks(self) -> list[Mark]:
        """Every task in flight, in slot order."""
        marks = (self._read(slot) for slot in range(SLOTS))
        return [m for m in marks if m is not None]

    def _read(self, slot: int) -> Mark | None:
        offset = HEADER_BYTES + slot * SLOT_BYTES
        for _ in range(5):
            fields = SLOT.unpack_from(self._map, offset)
            if fields[0] % 2 == 0 and fields[0] == struct.unpack_from("=Q", self._map, offset)[0]:
                break
        _, counter, task, thread, state, at, step, detail = fields
        if state == IDLE:
            return None
        return Mark(slot, task, counter, state == INSIDE, at, thread, _text(step), _text(detail))


def _field(text: str, size: int) -> bytes:
    return text.encode("utf-8", "replace")[:size]


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("utf-8", "ignore")
