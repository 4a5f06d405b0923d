"""An S3-compatible store that can be told to misbehave: what a real store does to a run, at will.

Keeps objects in memory and answers put, get, head, delete and list (version 2) for any bucket. Runs in a thread of
its own; the faults are plain attributes, read at each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from aiohttp import web

READY_S = 10.0


@dataclass(slots=True)
class Stored:
    body: bytes
    headers: dict[str, str]
    modified: datetime


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came: headers with their names in lower case."""

    method: str
    key: str
    headers: dict[str, str]


@dataclass(slots=True)
class Faults:
    """What goes wrong. All off at first."""

    refuse_checksums: bool = False
    """400 to a request with a checksum header."""
    black_hole: bool = False
    """No request is ever answered."""
    hold: str = ""
    """Requests for keys that contain this are not answered while it is set."""
    delay_s: float = 0.0
    """Each answer waits for this long."""
    cut_listing_without_token: bool = False
    """Listings are cut after `page_size` keys and give no token; only `start-after` leads on."""
    deaf_to_start_after: bool = False
    """And not even that."""
    page_size: int = 1000
    answer: Callable[[Request], tuple[int, str] | None] = lambda request: None
    """Asked first: a status and an S3 error code (empty: no body) to answer with, or None."""


@dataclass(slots=True)
class Store:
    """`objects` by key, `requests` in the order they came. `expected` counts requests that waited for a 100 Continue
    which never comes."""

    url: str = ""
    objects: dict[str, Stored] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    expected: int = 0

    def fail_first(self, count: int, status: int, code: str, method: str = "PUT", ending: str = "") -> None:
        """The first `count` requests of `method` for keys that end in `ending` get this error."""
        left = [count]

        def answer(request: Request) -> tuple[int, str] | None:
            if request.method != method or not request.key.endswith(ending) or not left[0]:
                return None
            left[0] -= 1
            return status, code

        self.faults.answer = answer

    def count(self, method: str, ending: str = "") -> int:
        return sum(r.method == method and r.key.endswith(ending) for r in list(self.requests))


@contextlib.contextmanager
def running() -> Iterator[Store]:
    """Such a store on a loopback port."""
    store, started = Store(), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        app = web.Application(client_max_size=1 << 30)
        handler = _Handler(store, stop)
        app.router.add_route("*", "/{bucket}", handler.bucket, expect_handler=handler.ignore_expect)
        app.router.add_route("*", "/{bucket}/{key:.*}", handler.object, expect_handler=handler.ignore_expect)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        store.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="s3 double", daemon=True)
    thread.start()
    try:
        assert started.wait(READY_S)
        yield store
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(READY_S)
        loop.close()


class _Handler:
    def __init__(self, store: Store, stop: asyncio.Event) -> None:
        self._store, self._stop = store, stop

    async def ignore_expect(self, request: web.Request) -> None:
        """Takes the place of aiohttp's, which answers `100 Continue`."""
        self._store.expected += 1

    async def bucket(self, request: web.Request) -> web.StreamResponse:
        return await self._faulty(request, "") or self._listing(request)

    async def object(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["key"]
        body = await request.read()
        if not key:
            return await self.bucket(request)
        return await self._faulty(request, key) or self._answer(request, key, body)

    async def _faulty(self, request: web.Request, key: str) -> web.StreamResponse | None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen = Request(request.method, key, headers)
        self._store.requests.append(seen)
        faults = self._store.faults
        if faults.black_hole:
            await self._stop.wait()
        while faults.hold and faults.hold in key and not self._stop.is_set():
            await asyncio.sleep(0.005)
        if faults.delay_s:
            await asyncio.sleep(faults.delay_s)
        if faults.refuse_checksums and any("x-amz-checksum" in n or "x-amz-sdk-checksum" in n for n in headers):
            return _error(400, "InvalidRequest")
        refused = faults.answer(seen)
        return _error(*refused) if refused else None

    def _answer(self, request: web.Request, key: str, body: bytes) -> web.Response:
        objects = self._store.objects
        if request.method == "PUT":
            kept = ("content-type", "cache-control")
            headers = {n.lower(): v for n, v in request.headers.items()}
            headers = {n: v for n, v in headers.items() if n in kept or n.startswith("x-amz-meta-")}
            objects[key] = Stored(body, headers, datetime.now(UTC))
            return web.Response()
        if request.method == "DELETE":
            objects.pop(key, None)
            return web.Response(status=204)
        if key not in objects:
            return _error(404, "" if request.method == "HEAD" else "NoSuchKey")
        stored = objects[key]
        headers = stored.headers | {"Last-Modified": stored.modified.strftime("%a, %d %b %Y %H:%M:%S GMT")}
        return web.Response(body=stored.body, headers=headers)

    def _listing(self, request: web.Request) -> web.Response:
        faults, query = self._store.faults, request.query
        after = query.get("continuation-token") or ("" if faults.deaf_to_start_after else query.get("start-after", ""))
        keys = sorted(k for k in self._store.objects if k.startswith(query.get("prefix", "")) and k > after)
        shown = keys[: faults.page_size]
        cut = len(shown) < len(keys)
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if cut else ""
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self._store.objects[key].body)}</Size>"
            f"<LastModified>{self._store.objects[key].modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
            for key in shown
        )
        body = (
            f"<ListBucketResult><IsTruncated>{str(cut).lower()}</IsTruncated>"
            f"{'' if faults.cut_listing_without_token else token}{contents}</ListBucketResult>"
        )
        return web.Response(text=body, content_type="application/xml")


def _error(status: int, code: str) -> web.Response:
    body = f"<Error><Code>{code}</Code><Message>said the double</Message></Error>" if code else ""
    return web.Response(status=status, text=body, content_type="application/xml")
