"""The origin's HTTP server: routes, the log of requests, and which fault meets a request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tools.origin.faults import STATUSES, Acting, Answer, Fault
from tools.origin.pages import Folder, Page, info, manifest2, manifest3, sizes

Faults = Mapping[int | str, Fault | Sequence[Fault]]
MANIFEST = "manifest"
_SIZE = re.compile(r"(?P<w>\d+),(?P<h>\d*)")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: `path` with its query as sent, `page` its number (None for a manifest), `at` monotonic seconds,
    `peer` the client's address and port."""

    path: str
    headers: dict[str, str]
    at: float
    page: int | None
    peer: str


class Origin:
    """Serves `folder`. `pages` repeats or cuts its images to so many pages; `level` is the image service's
    level (0: only the sizes of info.json), `service=False` gives bare file URLs. May be told more faults
    while it runs."""

    def __init__(
        self, folder: Path | str, faults: Faults | None = None, *, pages: int | None = None, service: bool =
        True, level: int = 2, host: str = "127.0.0.1", port: int = 0, ssl_context: Any = None,
    ) -> None:  # fmt: skip
        self.folder = Folder(Path(folder), pages)
        self.requests: list[Asked] = []
        self._service, self._level = service, level
        self._host, self._port, self._ssl = host, port, ssl_context
        self._faults: dict[str, list[Fault]] = {}
        self._met: Counter[tuple[str, int, str]] = Counter()
        self._acting = Acting()
        self._runner: web.AppRunner | None = None
        self.host_url = ""
        for target, fault in (faults or {}).items():
            self.fault(target, fault)

    # --- for the tests

    @property
    def manifest_url(self) -> str:
        return f"{self.host_url}/iiif/volume/manifest.json"

    @property
    def manifest2_url(self) -> str:
        return f"{self.host_url}/iiif/volume/manifest2.json"

    @property
    def image_urls(self) -> list[str]:
        """The bare files, in page order: an IMAGES volume."""
        return [f"{self.host_url}/files/{quote(p.name)}" for p in self.folder.pages]

    def fault(self, target: int | str, fault: Fault | Sequence[Fault]) -> None:
        """Let `target` meet `fault` (one, or several after each other), in place of what was told before."""
        self._faults[str(target)] = [fault] if isinstance(fault, Fault) else list(fault)
        for key in [k for k in self._met if k[0] == str(target)]:
            del self._met[key]

    def mend(self) -> None:
        """Misbehave no more."""
        self._faults.clear()
        self._met.clear()

    def asked(self, page: int | None = None) -> int:
        """How many requests there were for `page`; for all pages without one."""
        return sum(1 for r in self.requests if r.page is not None and page in (None, r.page))

    # --- lifecycle

    async def start(self) -> None:
        """Listen; `host_url` is set from here on."""
        app = web.Application(client_max_size=2**20)
        app.router.add_route("*", "/faults", self._tell)
        app.router.add_get("/requests", self._log)
        app.router.add_get("/{tail:.*}", self._get)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._ssl)
        await site.start()
        port = self._runner.addresses[0][1]
        name = "127.0.0.1" if self._host == "0.0.0.0" else self._host
        self.host_url = f"{'https' if self._ssl else 'http'}://{name}:{port}"

    async def stop(self) -> None:
        if self._runner is None:
            return
        server = self._runner.server
        await self._runner.cleanup()
        # A connection that was accepted at the last moment is made only in the loop's next turns.
        for _ in range(3):
            await asyncio.sleep(0)
        if server is not None:
            await server.shutdown(0)

    # --- requests

    async def _get(self, request: web.Request) -> web.StreamResponse:
        kind, page = self._what(request.path)
        self.requests.append(
            Asked(
                path=request.raw_path,
                headers=dict(request.headers),
                at=time.monotonic(),
                page=page.number if page else None,
                peer=str(request.transport and request.transport.get_extra_info("peername")),
            )
        )
        answer = self._true(request, kind, page)
        fault = self._fault(kind, page)
        if fault is None:
            return await answer()
        try:
            return await self._acting.act(fault, request, answer)
        except ConnectionError:  # The client has had enough, as it should.
            return web.Response()

    def _what(self, path: str) -> tuple[str, Page | None]:
        """The kind of request (`manifest`, `manifest2`, `info`, `file`, `max`, `full`, `sized`, `other`), and
        its page."""
        parts = path.strip("/").split("/")
        if parts[-1] in ("manifest.json", "manifest2.json"):
            return parts[-1].removesuffix(".json"), None
        page = self.folder.by_name.get(parts[1]) if len(parts) > 1 else None
        if page is None:
            return "other", None
        if parts[0] == "files":
            return "file", page
        if parts[2:] == ["info.json"]:
            return "info", page
        if len(parts) == 6 and parts[2] == "full":
            return (parts[3] if parts[3] in ("max", "full") else "sized"), page
        return "other", None

    def _fault(self, kind: str, page: Page | None) -> Fault | None:
        if page is None:
            targets, number = (MANIFEST, "*") if kind.startswith(MANIFEST) else ("*",), 0
        else:
            targets, number = (str(page.number), page.name, "images", "*"), page.number
        for target in targets:
            for i, fault in enumerate(self._faults.get(target, ())):
                key = (target, number, str(i))
                if (page is None or fault.meets(kind)) and (fault.times is None or self._met[key] < fault.times):
                    self._met[key] += 1
                    return fault
        return None

    def _true(self, request: web.Request, kind: str, page: Page | None) -> Answer:
        base = f"{request.scheme}://{request.host}"

        async def answer() -> web.Response:
            if kind.startswith(MANIFEST):
                build = manifest2 if kind == "manifest2" else manifest3
                url = base + request.path
                return web.json_response(build(self.folder, base, url, service=self._service, level=self._level))
            if page is None:
                return web.Response(status=404, text="no such page")
            if kind == "info":
                return web.json_response(info(self.folder, base, page, self._level))
            if kind == "file":
                return web.Response(body=page.file.read_bytes(), content_type="application/octet-stream")
            return await self._image(kind, page, request.path.split("/")[4])

        return answer

    async def _image(self, kind: str, page: Page, size: str) -> web.Response:
        match = _SIZE.fullmatch(size)
        natural = self.folder.size(page)
        if self._level == 0 and natural is not None:
            listed = {f"{s['width']},{s['height']}" for s in sizes(*natural)}
            if size not in listed:
                return web.Response(status=404, text="not one of the sizes of this level 0 service")
        elif kind == "sized" and match is None:
            return web.Response(status=400, text="a size this server does not know")
        width = int(match["w"]) if match else None
        body = await asyncio.to_thread(self.folder.jpeg, page, width)
        return web.Response(body=body, content_type="image/jpeg")

    # --- by hand

    async def _tell(self, request: web.Request) -> web.Response:
        """GET lists the faults, DELETE ends them, POST adds: one by query, or many by a JSON object by target."""
        try:
            if request.method == "DELETE":
                self.mend()
            elif request.method == "POST":
                given = dict(request.query)
                if "target" in given:
                    self.fault(given.pop("target"), _fault(given))
                else:
                    for target, told in (await request.json()).items():
                        self.fault(target, [_fault(t) for t in (told if isinstance(told, list) else [told])])
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            return web.Response(status=400, text=f"{e}\n")
        return web.json_response({t: [asdict(f) for f in told] for t, told in self._faults.items()})

    async def _log(self, request: web.Request) -> web.Response:
        return web.json_response([asdict(r) for r in self.requests], dumps=json.dumps)


def _fault(told: Mapping[str, Any]) -> Fault:
    """A fault from its JSON or query form.

    Raises:
        ValueError, TypeError, KeyError: it is none.
    """
    convert = {
        "times": int, "status": int, "seconds": float, "size_bytes": int, "count": int, "retry_after": str,
        "to": str, "verb": str, "on": lambda on: tuple(on.split(",") if isinstance(on, str) else on),
    }  # fmt: skip
    given = {name: convert[name](value) for name, value in told.items()}
    return Fault(**({"status": STATUSES.get(given["verb"], 503)} | given))


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@contextlib.contextmanager
def running_origin(folder: Path | str, faults: Faults | None = None, **settings: Any) -> Iterator[Origin]:
    """An origin in a thread of its own while the block runs; the settings are those of `Origin`."""
    origin = Origin(folder, faults, **settings)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(origin.start())
    thread = threading.Thread(target=loop.run_forever, name="origin")
    thread.start()
    try:
        yield origin
    finally:
        asyncio.run_coroutine_threadsafe(origin.stop(), loop).result(timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
