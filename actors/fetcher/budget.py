"""The bytes of fetched pages: held, or still arriving. Keeps their sum within LOOKAHEAD_BYTES.

How large a body will be is guessed from those before it until its own headers say; a download that turns out
too large for the room that is left gives way to the earlier ones and is begun again. One page is always let
through, so that nothing can wait for ever.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from actors.fetcher.errors import Crowded

log = logging.getLogger(__name__)

FIRST_GUESS_BYTES = 4 * 2**20


@dataclass(slots=True)
class _Claim:
    size_bytes: int
    arriving: bool


class Budget:
    """One event loop's thread only. Pages are let in by number."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._claims: dict[int, _Claim] = {}
        self._waiting: dict[int, tuple[int | None, asyncio.Future[None]]] = {}
        self._typical_bytes: float | None = None
        self._said_full = False

    @property
    def used_bytes(self) -> int:
        return sum(c.size_bytes for c in self._claims.values())

    async def admit(self, page: int, expected_bytes: int | None) -> None:
        """Wait until `page` may be downloaded; `expected_bytes` is known from an earlier try, else guessed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[page] = (expected_bytes, future)
        self._let_in()
        try:
            await future
        except asyncio.CancelledError:
            self.release(page)
            raise
        finally:
            self._waiting.pop(page, None)

    def arrived(self, page: int, size_bytes: int) -> None:
        """`size_bytes` of `page` are here or announced.

        Raises:
            Crowded: there is no room, and an earlier page is arriving or pages are held; its claim is given up.
        """
        claim = self._claims[page]
        more = size_bytes - claim.size_bytes
        if more <= 0:
            return
        if self.used_bytes + more > self._limit_bytes and not self._is_first(page):
            self.release(page)
            raise Crowded(size_bytes)
        claim.size_bytes = size_bytes

    def hold(self, page: int, size_bytes: int) -> None:
        """`page` is complete and held until `release`."""
        self._claims[page] = _Claim(size_bytes, arriving=False)
        old = self._typical_bytes
        self._typical_bytes = size_bytes if old is None else 0.8 * old + 0.2 * size_bytes
        self._let_in()

    def holds(self, page: int) -> bool:
        """Whether `page` is complete and held."""
        claim = self._claims.get(page)
        return claim is not None and not claim.arriving

    def release(self, page: int) -> None:
        """Nothing of `page` is held any more."""
        self._claims.pop(page, None)
        self._let_in()

    def _is_first(self, page: int) -> bool:
        """Whether no other page could make room for `page` by going on."""
        return all(number >= page for number, c in self._claims.items() if c.arriving)

    def _let_in(self) -> None:
        for page in sorted(self._waiting):
            known, future = self._waiting[page]
            if future.done():
                continue
            guess = known or int(self._typical_bytes or min(FIRST_GUESS_BYTES, self._limit_bytes))
            if self._claims and self.used_bytes + guess > self._limit_bytes:
                self._say_full()
                return
            self._claims[page] = _Claim(guess, arriving=True)
            future.set_result(None)

    def _say_full(self) -> None:
        held_bytes = sum(c.size_bytes for c in self._claims.values() if not c.arriving)
        if not self._said_full and 2 * held_bytes > self._limit_bytes:
            log.info("%d bytes are fetched and wait to be decoded: the next pages wait (LOOKAHEAD_BYTES)", held_bytes)
            self._said_full = True
