"""One HTTP request to an origin and its redirects: guarded, bounded in time and bytes, told apart when it fails.

Owns connections, timeouts, redirects, proxies. Does not retry (download.py), nor decide when to ask (pacing.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from actors.fetcher.addresses import AddressRefused, GuardedResolver, check_literal, literal
from actors.fetcher.bodies import Body, encoding_of
from actors.fetcher.errors import Answered, Denied, FetchError, Misdirected, TooLarge, Unavailable
from actors.fetcher.urls import Target, parse
from actors.redact import for_log

log = logging.getLogger(__name__)

CONNECT_S = 10.0
SILENCE_S = 30.0
REDIRECTS = 5
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Fetched:
    """A whole body, decoded. `wire_bytes` is what it took on the wire, `content_type` what the server calls it."""

    data: bytes
    wire_bytes: int
    content_type: str


class Client:
    """Asks origins; an async context manager. `deadline_s` bounds one `get` whatever phase it is in."""

    def __init__(self, *, user_agent: str, deadline_s: float, allow_private: bool) -> None:
        self._headers = {"User-Agent": user_agent, "Accept": "*/*", "Accept-Encoding": "gzip"}
        self._deadline_s, self._allow_private = deadline_s, allow_private
        self._proxies = _proxies()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trusted = frozenset((proxy.host, proxy.port) for proxy in self._proxies.values())
        resolver = GuardedResolver(allow_private=self._allow_private, trusted=trusted)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, resolver=resolver, ttl_dns_cache=60),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_connect=CONNECT_S, sock_read=SILENCE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, url: str, *, most_bytes: int, arrived: Callable[[int], None] = lambda _: None) -> Fetched:
        """The body at `url`, at most `most_bytes` decoded; `arrived` hears its size as it grows, and may raise.

        Raises:
            Answered: the last answer has a status that is no success.
            Denied: asking again would give the same (also TooLarge, Misdirected).
            Unavailable: the network, the server or the deadline cut it off.
        """
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._follow(parse(url), most_bytes, arrived)
        except TimeoutError as e:
            raise Unavailable(
                f"{for_log(url)}: not done after {self._deadline_s:g} s (DOWNLOAD_DEADLINE_SECONDS)"
            ) from e

    async def _follow(self, target: Target, most_bytes: int, arrived: Callable[[int], None]) -> Fetched:
        seen = {target.url}
        for _ in range(REDIRECTS + 1):
            async with self._asked(target) as response:
                if response.status not in _REDIRECT_STATUSES:
                    return await self._received(response, target, most_bytes, arrived)
                location = response.headers.get("Location")
                if not location:
                    raise Misdirected(f"{for_log(target.url)} answers {response.status} without saying where to go")
                target = target.redirected(location)
            if target.url in seen:
                raise Misdirected(f"a redirect loop at {for_log(target.url)}")
            seen.add(target.url)
        raise Misdirected(f"more than {REDIRECTS} redirects, the last to {for_log(target.url)}")

    @contextlib.asynccontextmanager
    async def _asked(self, target: Target) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to one request; the network's many ways to fail become `Unavailable`."""
        assert self._session is not None
        check_literal(target.host, allow_private=self._allow_private)
        headers = dict(self._headers)
        if target.authorization is not None:
            headers["Authorization"] = target.authorization
        proxy = self._proxy(target)
        for_proxy = {"User-Agent": self._headers["User-Agent"]}
        if proxy is not None and proxy.authorization is not None:
            for_proxy["Proxy-Authorization"] = proxy.authorization
        if proxy is not None and target.scheme == "http":
            headers |= for_proxy  # The proxy reads the request itself; for https only the CONNECT before it.
        try:
            async with self._session.get(
                _as_it_is(target),
                headers=headers,
                allow_redirects=False,
                proxy=None if proxy is None else _as_it_is(proxy),
                proxy_headers=None if proxy is None else for_proxy,
            ) as response:
                yield response
        except aiohttp.ClientConnectorDNSError as e:
            if isinstance(e.os_error, AddressRefused):
                raise Denied(str(e.os_error)) from e
            raise Unavailable(f"{e.host} cannot be resolved ({e.os_error.strerror or e.os_error})") from e
        except aiohttp.ClientConnectorCertificateError as e:
            raise Unavailable(_untrusted(e, target)) from e
        except aiohttp.ClientConnectorSSLError as e:
            raise Unavailable(f"{target.host}:{target.port} does not speak TLS as it should: {e.os_error}") from e
        except (aiohttp.ClientHttpProxyError, aiohttp.ClientProxyConnectionError) as e:
            raise Unavailable(_by_proxy(e, proxy, target)) from e
        except aiohttp.ClientConnectorError as e:
            raise Unavailable(f"{target.host}:{target.port} cannot be reached: {_os_reason(e)}") from e
        except (aiohttp.ServerTimeoutError, aiohttp.ConnectionTimeoutError) as e:
            raise Unavailable(_timed_out(e, target, proxy or target)) from e
        except aiohttp.InvalidURL as e:
            raise Denied(f"{for_log(target.url)} is not a URL that can be asked") from e
        except aiohttp.ClientPayloadError as e:
            raise Unavailable(
                f"a short body from {for_log(target.url)}: the connection ended before it was whole"
            ) from e
        except aiohttp.ClientResponseError as e:
            fault = e.message.strip().partition("\n")[0].rstrip(":")
            raise Unavailable(f"{for_log(target.url)}: the server does not speak HTTP as it should ({fault})") from e
        except (aiohttp.ClientError, OSError) as e:
            raise Unavailable(f"{for_log(target.url)}: {for_log(str(e) or type(e).__name__)}") from e

    async def _received(
        self, response: aiohttp.ClientResponse, target: Target, most_bytes: int, arrived: Callable[[int], None]
    ) -> Fetched:
        shown = for_log(target.url)
        if not 200 <= response.status < 300:
            raise Answered(response.status, shown, retry_after_s(response.headers.get("Retry-After")))
        try:
            encoding = encoding_of(response.headers.get("Content-Encoding", ""))
        except Denied as e:
            raise Denied(f"{shown}: {e}") from e
        announced = response.content_length or 0
        if announced > most_bytes and encoding == "identity":
            raise TooLarge(f"{shown} has {announced} bytes, more than the {most_bytes} allowed")
        body = Body(encoding, most_bytes, arrived)
        try:
            if encoding == "identity":
                arrived(announced)
            async for data in response.content.iter_any():
                body.feed(data)
            body.finish()
        except TooLarge as e:
            raise _counted(TooLarge(f"{shown} has more than the {most_bytes} bytes allowed"), body) from e
        except Unavailable as e:
            raise _counted(Unavailable(f"{shown}: {e}"), body) from e
        content_type = response.headers.get("Content-Type", "").encode("ascii", "replace").decode()
        return Fetched(body.data, body.wire_bytes, content_type)

    def _proxy(self, target: Target) -> Target | None:
        """The environment's proxy for this target."""
        proxy = self._proxies.get(target.scheme) or self._proxies.get("all")
        return None if proxy is None or _goes_direct(target) else proxy


def _as_it_is(target: Target) -> URL:
    """For aiohttp, the request target in one piece: split at its question mark, it would lose a bare one at its end."""
    return URL.build(scheme=target.scheme, authority=target.authority, path=target.path, encoded=True)


def _goes_direct(target: Target) -> bool:
    """Whether NO_PROXY names the target: its host, a domain, `host:port`, or a network that its address is in."""
    if urllib.request.proxy_bypass(f"{target.host}:{target.port}"):
        return True
    address = literal(target.host)
    networks = (_network(entry) for entry in urllib.request.getproxies().get("no", "").split(","))
    return address is not None and any(network is not None and address in network for network in networks)


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry.strip(), strict=False) if "/" in entry else None
    except ValueError:
        return None


def _proxies() -> dict[str, Target]:
    """The environment's proxies by the scheme they are for; one that cannot be used is said and left out."""
    usable = {}
    for kind, proxy in urllib.request.getproxies().items():
        if kind in ("http", "https", "all") and proxy:
            try:
                usable[kind] = parse(proxy if "://" in proxy else f"http://{proxy}")
            except Denied as e:
                log.warning("the environment's %s proxy is not used: %s", kind, e)
    return usable


def retry_after_s(header: str | None) -> float | None:
    """The wait that a Retry-After header asks for, in seconds or as a date; None where it says nothing usable."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _timed_out(error: Exception, target: Target, connected: Target) -> str:
    if isinstance(error, aiohttp.SocketTimeoutError):
        return f"{for_log(target.url)}: {SILENCE_S:g} s without a byte"
    return f"{connected.host} does not take a connection within {CONNECT_S:g} s"


def _untrusted(error: aiohttp.ClientConnectorCertificateError, target: Target) -> str:
    cause = error.certificate_error
    why = getattr(cause, "verify_message", "") or cause
    return (
        f"the certificate of {target.host}:{target.port} is not accepted ({why}): have the server's certificate mended, "
        "or name a file with the authority that signed it with SSL_CERT_FILE"
    )


def _by_proxy(error: aiohttp.ClientError, proxy: Target | None, target: Target) -> str:
    name = "the proxy" if proxy is None else f"the proxy {proxy.authority}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"{name} does not connect to {target.host}:{target.port}: it answers {error.status} ({error.message})"
    return f"{name} cannot be reached: {_os_reason(error)}"


def _os_reason(error: aiohttp.ClientError) -> str:
    number = error.os_error.errno if isinstance(error, aiohttp.ClientConnectorError) else None
    return os.strerror(number) if number else str(error)


def _counted(error: FetchError, body: Body) -> FetchError:
    error.wire_bytes = body.wire_bytes
    return error
