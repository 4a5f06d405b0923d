"""One page's way from its URL to bytes with a good header: sizes tried, attempts, waits, and the outcome when it fails.

The table is batchpod/README.md, section 5. A size that a server does not have is no attempt; an attempt is one
request that the network, the server or the deadline spoiled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.fetcher.budget import Budget
from actors.fetcher.errors import (
    THROTTLED_STATUSES,
    Answered,
    Crowded,
    Denied,
    FetchError,
    Unavailable,
)
from actors.fetcher.http import Client, Fetched
from actors.fetcher.pacing import LONGEST_HOLD_S, Pacing
from actors.fetcher.sizes import FALLBACK_STATUSES, fallbacks, info_url, sized_from_info
from actors.fetcher.source import Page
from actors.fetcher.urls import parse
from actors.messages import DEFERRED, FAILED
from actors.redact import for_log

if TYPE_CHECKING:
    from actors.fetcher.images import Header

log = logging.getLogger(__name__)

ATTEMPTS = 3
BACKOFF_S = 0.5
INFO_MOST_BYTES = 2**20
Judge = Callable[[bytes, str, str], Awaitable["Header"]]
"""Judges a body by its bytes: (body, content type, its URL for messages) to its header; raises FetchError."""


class PageLost(Exception):
    """The page has no image: `outcome` is failed or deferred, `str()` the reason."""

    def __init__(self, outcome: str, reason: str, wire_bytes: int) -> None:
        super().__init__(reason)
        self.outcome, self.wire_bytes = outcome, wire_bytes


@dataclass(frozen=True, slots=True)
class Image:
    """A page's bytes, whose header is good. `wire_bytes` counts every body downloaded for it, in vain or not."""

    data: bytes
    header: Header
    wire_bytes: int


class Sizes:
    """Which URL of a page is asked now, and which after a refusal: its own, `max`, `full`, what info.json lists.

    `url` is None while info.json has to be read first.
    """

    def __init__(self, page: Page, max_width: int) -> None:
        self._page, self._max_width = page, max_width
        plain: list[str | None] = [page.url, *fallbacks(page)]
        self.info_url = info_url(page)
        self._steps = [None, *plain] if page.level0 and self.info_url else plain
        self._info_unread = self.info_url is not None
        self._statuses: list[int] = []
        self._at = 0
        self.last: Answered | None = None

    @property
    def url(self) -> str | None:
        return self._steps[self._at]

    def refused(self, answer: Answered) -> bool:
        """Go on after `answer` to `url`; false when there is nothing left to try, and it is the one that counts."""
        self.last = answer
        if answer.status not in FALLBACK_STATUSES or self._page.service is None:
            return False
        self._statuses.append(answer.status)
        if self._at + 1 == len(self._steps) and self._info_unread and 404 in self._statuses[-2:]:
            self._steps.append(None)
        if self._at + 1 == len(self._steps):
            return False
        self._at += 1
        return True

    def informed(self, info: bytes | None) -> bool:
        """Ask for the size that info.json lists. Without one the next URL is asked; false when there is none,
        and the last one stays."""
        self._info_unread = False
        url = None if info is None else sized_from_info(self._page, info, self._max_width)
        if url is not None:
            self._steps[self._at] = url
            return True
        del self._steps[self._at]
        if self._at < len(self._steps):
            return True
        self._at -= 1
        return False


class Downloads:
    """Downloads pages; many at once, of one event loop's thread."""

    def __init__(
        self, client: Client, pacing: Pacing, budget: Budget, judge: Judge, *, most_bytes: int, max_width: int
    ) -> None:
        self._client, self._pacing, self._budget, self._judge = client, pacing, budget, judge
        self._most_bytes, self._max_width = most_bytes, max_width

    async def image(self, number: int, page: Page, started: Callable[[], None]) -> Image:
        """The image of page `number`; `started` is called just before each request.

        Its bytes are held in the budget when this returns, and not when it raises.

        Raises:
            PageLost: it has none.
        """
        sizes = Sizes(page, self._max_width)
        wire_bytes, attempts = 0, 0
        expected_bytes: int | None = None
        while True:
            try:
                await self._budget.admit(number, expected_bytes)
                fetched, header = await self._once(number, sizes, started)
                self._budget.hold(number, len(fetched.data))
                return Image(fetched.data, header, wire_bytes + fetched.wire_bytes)
            except Crowded as e:
                # A size that was announced is exact; one that only grows is taken for twice what was seen of it.
                expected_bytes = e.size_bytes if expected_bytes is None else 2 * e.size_bytes
                continue
            except Denied as e:
                raise PageLost(FAILED, str(e), wire_bytes + e.wire_bytes) from e
            except Answered as e:
                if sizes.refused(e):
                    continue
                if not e.transient:
                    raise PageLost(FAILED, str(e), wire_bytes) from e
                error: FetchError = e
            except Unavailable as e:
                error = e
            finally:
                if not self._budget.holds(number):
                    self._budget.release(number)
            wire_bytes += error.wire_bytes
            attempts += 1
            if attempts == ATTEMPTS:
                raise PageLost(DEFERRED, f"{error} (after {ATTEMPTS} attempts)", wire_bytes) from error
            log.debug("page %d, attempt %d: %s", number, attempts, error)
            await asyncio.sleep(wait_s(attempts, error.retry_after_s if isinstance(error, Answered) else None))

    async def _once(self, number: int, sizes: Sizes, started: Callable[[], None]) -> tuple[Fetched, Header]:
        """One request for the image, after one for info.json where that is due.

        Raises:
            FetchError: it gave none.
            Crowded: it is too large for the room that is left.
        """
        if sizes.url is None:
            await informed(
                sizes, lambda info_url: self._asked(number, info_url, INFO_MOST_BYTES, _ignored, started)
            )
        url = sizes.url
        assert url is not None

        def arrived(size_bytes: int) -> None:
            self._budget.arrived(number, size_bytes)

        fetched = await self._asked(number, url, self._most_bytes, arrived, started)
        try:
            header = await self._judge(fetched.data, fetched.content_type, for_log(url))
        except FetchError as e:
            e.wire_bytes = fetched.wire_bytes
            raise
        return fetched, header

    async def _asked(
        self, number: int, url: str, most_bytes: int, arrived: Callable[[int], None], started: Callable[[], None]
    ) -> Fetched:
        """One paced request; tells the pacing what the host made of it."""
        async with self._pacing.turn(parse(url).host, number) as turn:
            started()
            try:
                fetched = await self._client.get(url, most_bytes=most_bytes, arrived=arrived)
            except Answered as e:
                if e.status in THROTTLED_STATUSES:
                    self._pacing.complained(turn, e.status, e.retry_after_s)
                elif not e.transient:
                    self._pacing.good(turn)
                raise
            self._pacing.good(turn)
            return fetched


async def informed(sizes: Sizes, ask: Callable[[str], Awaitable[Fetched]]) -> None:
    """Read info.json; where it cannot be had, the next URL is to be asked, or the page judged by the last answer.

    Raises:
        FetchError: that answer, or a passing trouble with info.json itself.
    """
    assert sizes.info_url is not None
    info: bytes | None = None
    refusal: FetchError | None = None
    try:
        info = bytes((await ask(sizes.info_url)).data)
    except Denied as e:
        refusal = e
    except Answered as e:
        if e.transient:
            raise
        refusal = e
    if not sizes.informed(info):
        raise sizes.last or refusal or Denied(f"{for_log(sizes.info_url)} lists no size")


def wait_s(attempts: int, retry_after_s: float | None) -> float:
    """The wait after so many spoiled attempts: 0.5 s x 2^n, or what the server asks for, up to 60 s."""
    backoff_s: float = BACKOFF_S * 2 ** (attempts - 1)
    return backoff_s if retry_after_s is None else max(backoff_s, min(retry_after_s, LONGEST_HOLD_S))


def _ignored(_: int) -> None:
    """Bytes that nobody counts."""
