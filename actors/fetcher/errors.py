"""Why a fetch did not give what was asked for. `Denied` is for good, `Unavailable` is worth asking again."""

from __future__ import annotations

from http import HTTPStatus

TRANSIENT_STATUSES = frozenset({408, 425, 429})
THROTTLED_STATUSES = frozenset({429, 503, 509})
"""Answers of a server that is asked too much; 509 is what some image servers use (Bandwidth Limit Exceeded)."""


class FetchError(Exception):
    """`str()` is a plain sentence; `wire_bytes` is how much of a body was downloaded in vain."""

    wire_bytes: int = 0


class Denied(FetchError):
    """Asking again gives the same: a refused address, too many bytes, no image."""


class TooLarge(Denied):
    """The decoded body is over its limit."""


class Misdirected(Denied):
    """Redirects that lead nowhere: a loop, too many, or one without a target."""


class Unavailable(FetchError):
    """A network error, a deadline, a short body, an HTML page instead of an image."""


class Answered(FetchError):
    """The server answered with a status that is no success."""

    def __init__(self, status: int, url: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{_named(status)} for {url}")
        self.status, self.retry_after_s = status, retry_after_s

    @property
    def transient(self) -> bool:
        return self.status in TRANSIENT_STATUSES or self.status >= 500


class Crowded(Exception):
    """The bodies under way and held are over their budget; this download makes room and is begun again later.

    `size_bytes` is what is known of its own size.
    """

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"no room for {size_bytes} bytes")
        self.size_bytes = size_bytes


def _named(status: int) -> str:
    try:
        return f"HTTP {status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return f"HTTP {status}"
