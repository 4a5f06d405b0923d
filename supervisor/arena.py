"""The pixel arena: one anonymous shared memory, split into blocks that the supervisor hands out and takes back.

Anonymous (a memfd), so there is no name to leak and no /dev/shm size to hit; the kernel frees it with the last
process. This module owns the book-keeping of blocks; the bytes are mapped by the children only.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

ALIGN_BYTES = 4096
FAIR_AFTER_S = 5.0
"""Once a request has waited this long, blocks are given in the order of asking, so that small requests cannot starve
a large one."""


@dataclass(frozen=True, slots=True)
class Block:
    """`length` bytes at `offset` of the arena."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Lent:
    """A block in use: who asked for it (`key`), who may touch it now (`holder`), since when."""

    block: Block
    key: int
    holder: str
    since_at: float


def create(size_bytes: int) -> int:
    """A new arena of `size_bytes`; returns its descriptor. Memory is taken only by `reserve`."""
    fd = os.memfd_create("pixels", os.MFD_CLOEXEC)
    os.ftruncate(fd, size_bytes)
    return fd


def read_only(fd: int) -> int:
    """A second descriptor of the same arena through which it cannot be written."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def reserve(fd: int, size_bytes: int) -> None:
    """Take the arena's memory now (some 230 ms for 512 MiB), so that no later write can fail.

    Raises:
        OSError: the memory is not there.
    """
    os.posix_fallocate(fd, 0, size_bytes)


def view(fd: int, size_bytes: int, *, writable: bool) -> memoryview:
    """The whole arena as bytes; read-only unless `writable`."""
    prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return memoryview(mmap.mmap(fd, size_bytes, prot=prot))


class Arena:
    """Which bytes of the arena are whose. First fit, neighbours joined when freed, FIFO once somebody has waited."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._free: list[Block] = [Block(0, size_bytes)]
        self._lent: dict[int, Lent] = {}
        self._requests: dict[int, tuple[int, float]] = {}
        self._worth_a_look = True

    def fits(self, length: int) -> bool:
        """Whether a block of `length` bytes can ever be had."""
        return _aligned(length) <= self.size_bytes

    def request(self, key: int, length: int, now: float) -> None:
        """Ask for a block for `key`; `grants` gives it when there is room.

        Raises:
            ValueError: `key` already has or wants one, or it can never fit.
        """
        if key in self._requests or key in self._lent:
            raise ValueError(f"{key} already has or wants a block")
        if not self.fits(length):
            raise ValueError(f"{length} bytes never fit into {self.size_bytes}")
        self._requests[key] = (length, now)
        self._worth_a_look = True

    def withdraw(self, key: int) -> None:
        """Forget a request that was not granted yet."""
        if self._requests.pop(key, None) is not None:
            self._worth_a_look = True

    def grants(self, holder: str, now: float, only: int | None = None) -> list[tuple[int, Block]]:
        """Give blocks to waiting requests, in the order of asking where possible; each is lent to `holder`.

        With `only` no other request is looked at.
        """
        if not self._worth_a_look:
            return []
        self._worth_a_look = only is not None
        given = []
        too_long = self.size_bytes + 1
        for key, (length, since_at) in list(self._requests.items()):
            if only is not None and key != only:
                continue
            block = self._take(_aligned(length)) if length < too_long else None
            if block is None:
                too_long = min(too_long, length)
                if now - since_at >= FAIR_AFTER_S:
                    break
                continue
            del self._requests[key]
            self._lent[key] = Lent(Block(block.offset, length), key, holder, now)
            given.append((key, self._lent[key].block))
        return given

    def pass_on(self, key: int, holder: str, now: float) -> None:
        """`key`'s block is now touched by `holder`."""
        lent = self._lent[key]
        self._lent[key] = Lent(lent.block, key, holder, now)

    def free(self, key: int) -> None:
        """Take `key`'s block back (or its request); nothing happens if it has none."""
        self.withdraw(key)
        lent = self._lent.pop(key, None)
        if lent is not None:
            self._give_back(Block(lent.block.offset, _aligned(lent.block.length)))
            self._worth_a_look = True

    def block(self, key: int) -> Block | None:
        lent = self._lent.get(key)
        return lent.block if lent else None

    @property
    def lent(self) -> list[Lent]:
        return list(self._lent.values())

    def wanted(self, key: int) -> bool:
        """Whether `key` has asked for a block and not got it yet."""
        return key in self._requests

    @property
    def waiting(self) -> int:
        return len(self._requests)

    @property
    def used_bytes(self) -> int:
        return self.size_bytes - sum(b.length for b in self._free)

    def _take(self, length: int) -> Block | None:
        for i, hole in enumerate(self._free):
            if hole.length >= length:
                rest = Block(hole.offset + length, hole.length - length)
                self._free[i : i + 1] = [rest] if rest.length else []
                return Block(hole.offset, length)
        return None

    def _give_back(self, block: Block) -> None:
        joined: list[Block] = []
        for hole in sorted([*self._free, block], key=lambda b: b.offset):
            if joined and joined[-1].offset + joined[-1].length == hole.offset:
                joined[-1] = Block(joined[-1].offset, joined[-1].length + hole.length)
            else:
                joined.append(hole)
        self._free = joined


def _aligned(length: int) -> int:
    return max(ALIGN_BYTES, -(-length // ALIGN_BYTES) * ALIGN_BYTES)
