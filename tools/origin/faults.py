"""The ways in which an origin can misbehave; each is a `Fault`, made by the function of its name."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

JPEG_START = b"\xff\xd8\xff\xe0\x00\x10JFIF"
FOR_EVER_S = 86400.0
STATUSES = {"html": 200, "redirect": 302, "chain": 302, "loop": 301, "limit": 429}
"""The status of a verb that was told by hand without one."""
Answer = Callable[[], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Fault:
    """`verb` with its settings; `times` requests meet it (None: all), then the next fault or the true answer comes.

    `on` narrows it to some requests for a page: `sized`, `max`, `full`, `info`, `file` (default: all but `info`).
    """

    verb: str
    times: int | None = None
    on: tuple[str, ...] = ()
    status: int = 503
    retry_after: str | None = None
    seconds: float = 0.0
    size_bytes: int = 0
    to: str = ""
    count: int = 0

    def meets(self, kind: str) -> bool:
        return kind in self.on if self.on else kind != "info"


def status(
    code: int, *, times: int | None = None, retry_after: str | float | None = None, on: tuple[str, ...] = ()
) -> Fault:
    """Answer with this status."""
    return Fault("status", times, on, status=code, retry_after=None if retry_after is None else str(retry_after))


def delay(seconds: float, *, times: int | None = None) -> Fault:
    """The true answer, late."""
    return Fault("delay", times, seconds=seconds)


def short(*, times: int | None = None) -> Fault:
    """Half of the body that Content-Length announces, then the connection is closed."""
    return Fault("short", times)


def drip(seconds: float, size_bytes: int = 64, *, times: int | None = None) -> Fault:
    """The true body, `size_bytes` every `seconds`."""
    return Fault("drip", times, seconds=seconds, size_bytes=size_bytes)


def stall(size_bytes: int = 100, *, times: int | None = None) -> Fault:
    """The first bytes of the true body, then nothing more."""
    return Fault("stall", times, size_bytes=size_bytes)


def silent(*, times: int | None = None) -> Fault:
    """Take the request and never answer."""
    return Fault("silent", times)


def html(*, times: int | None = None, code: int = 200) -> Fault:
    """A web page where the image should be."""
    return Fault("html", times, status=code)


def typed(content_type: str, *, times: int | None = None) -> Fault:
    """The true body under another content type."""
    return Fault("typed", times, to=content_type)


def encoded(content_encoding: str, *, times: int | None = None) -> Fault:
    """The true body, announced under a content encoding that it does not have (`gzip` is really applied)."""
    return Fault("encoded", times, to=content_encoding)


def redirect(to: str, code: int = 302, *, times: int | None = None) -> Fault:
    """To another URL, absolute or relative."""
    return Fault("redirect", times, status=code, to=to)


def chain(count: int, code: int = 302) -> Fault:
    """`count` redirects, then the true answer."""
    return Fault("chain", None, status=code, count=count)


def loop(code: int = 301) -> Fault:
    """To itself."""
    return Fault("loop", None, status=code)


def reset(*, times: int | None = None) -> Fault:
    """The connection is cut without an answer."""
    return Fault("reset", times)


def endless(*, times: int | None = None) -> Fault:
    """A body that begins like a JPEG and never ends."""
    return Fault("endless", times)


def bomb(size_bytes: int = 2**30) -> Fault:
    """A gzip body of a few kilobytes that inflates to `size_bytes`."""
    return Fault("bomb", size_bytes=size_bytes)


def headers(seconds: float = 0.05) -> Fault:
    """A header line every so many seconds, for ever."""
    return Fault("headers", seconds=seconds)


def limit(per_second: int, retry_after: str | float | None = None, code: int = 429) -> Fault:
    """At most so many requests in any second; the others get `code`."""
    return Fault(
        "limit", None, status=code, count=per_second, retry_after=None if retry_after is None else str(retry_after)
    )


@dataclass(slots=True)
class Acting:
    """Performs faults; remembers when requests were let through, for `limit`."""

    passed_at: deque[float] = field(default_factory=deque)

    async def act(self, fault: Fault, request: web.Request, answer: Answer) -> web.StreamResponse:
        """The response to `request` under `fault`; `answer` gives the true one."""
        match fault.verb:
            case "status":
                return _status(fault)
            case "limit":
                return await answer() if self._within(fault.count) else _status(fault)
            case "delay":
                await asyncio.sleep(fault.seconds)
                return await answer()
            case "silent":
                await asyncio.sleep(FOR_EVER_S)
                return web.Response(status=504)
            case "html":
                return web.Response(
                    status=fault.status, text="<!DOCTYPE html><html>maintenance</html>", content_type="text/html"
                )
            case "typed":
                true = await answer()
                return web.Response(body=true.body, content_type=fault.to)
            case "redirect":
                return web.Response(status=fault.status, headers={"Location": fault.to})
            case "loop":
                return web.Response(status=fault.status, headers={"Location": request.raw_path})
            case "chain":
                hop = int(request.query.get("hop", "0"))
                if hop >= fault.count:
                    return await answer()
                return web.Response(status=fault.status, headers={"Location": f"{request.path}?hop={hop + 1}"})
            case "reset":
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            case "headers":
                return await _headers(fault, request)
            case _:
                return await _stream(fault, request, answer)

    def _within(self, per_second: int) -> bool:
        now = time.monotonic()
        while self.passed_at and now - self.passed_at[0] >= 1.0:
            self.passed_at.popleft()
        if len(self.passed_at) >= per_second:
            return False
        self.passed_at.append(now)
        return True


def _status(fault: Fault) -> web.Response:
    extra = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
    return web.Response(status=fault.status, headers=extra, text=f"told to answer {fault.status}")


async def _headers(fault: Fault, request: web.Request) -> web.StreamResponse:
    transport = request.transport
    assert transport is not None
    transport.write(b"HTTP/1.1 200 OK\r\n")
    number = 0
    while not transport.is_closing():
        transport.write(b"X-%d: y\r\n" % number)
        number += 1
        await asyncio.sleep(fault.seconds)
    return web.Response()


async def _stream(fault: Fault, request: web.Request, answer: Answer) -> web.StreamResponse:
    """The verbs that write a body piece by piece."""
    if fault.verb in ("endless", "bomb"):
        return await (_endless(request) if fault.verb == "endless" else _bomb(request, fault.size_bytes))
    true = await answer()
    body = bytes(true.body) if isinstance(true.body, (bytes, bytearray, memoryview)) else b""
    if fault.verb == "encoded" and fault.to == "gzip":
        packer = zlib.compressobj(wbits=31)
        body = packer.compress(body) + packer.flush()
    about = {"Content-Type": true.content_type, "Content-Length": str(len(body))}
    response = web.StreamResponse(headers=about)
    if fault.verb == "encoded":
        response.headers["Content-Encoding"] = fault.to
    await response.prepare(request)
    match fault.verb:
        case "short":
            await response.write(body[: len(body) // 2])
            if request.transport is not None:
                request.transport.close()
        case "stall":
            await response.write(body[: fault.size_bytes])
            await asyncio.sleep(FOR_EVER_S)
        case "drip":
            for start in range(0, len(body), fault.size_bytes):
                await response.write(body[start : start + fault.size_bytes])
                await asyncio.sleep(fault.seconds)
        case "encoded":
            await response.write(body)
        case _:
            raise ValueError(f"{fault.verb} is not a verb of this origin")
    return response


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "image/jpeg"})
    await response.prepare(request)
    await response.write(JPEG_START)
    while True:
        await response.write(b"\0" * 65536)


async def _bomb(request: web.Request, size_bytes: int) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "image/jpeg", "Content-Encoding": "gzip"})
    await response.prepare(request)
    packer = zlib.compressobj(wbits=31)
    await response.write(packer.compress(JPEG_START))
    block = b"\0" * 2**20
    for _ in range(size_bytes // len(block)):
        if packed := packer.compress(block):
            await response.write(packed)
    await response.write(packer.flush())
    return response
