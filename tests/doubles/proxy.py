"""A small HTTP proxy: tunnels (CONNECT) and plain requests, each to that port of this machine, whatever the host.

So a host that exists nowhere is reached through it and no other way. Runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

READY_S = 10.0


@dataclass(slots=True)
class Proxy:
    """`heard` are the heads of the requests as they came; `authorization` is what each has to carry; with `refusal`
    (a status line's code and words) nothing is let through."""

    authorization: str = ""
    refusal: str = ""
    port: int = 0
    heard: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def tunnels(self) -> list[str]:
        """`host:port` of each CONNECT."""
        return [head.split()[1] for head in self.heard if head.startswith("CONNECT ")]


@contextlib.contextmanager
def running_proxy(proxy: Proxy) -> Iterator[Proxy]:
    """`proxy`, listening."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    ready = threading.Event()

    async def serve() -> None:
        tasks: set[asyncio.Task[None]] = set()

        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await _serve(proxy, reader, writer)
            await _closed(writer)
            tasks.discard(task)

        server = await asyncio.start_server(taken, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        await asyncio.sleep(0)
        for task in list(tasks):
            task.cancel()
        while tasks:
            await asyncio.sleep(0.001)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="proxy")
    thread.start()
    try:
        assert ready.wait(READY_S)
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _serve(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    proxy.heard.append(head.decode())
    method, target, version = head.split(b"\r\n")[0].decode().split()
    if proxy.authorization not in head.decode():
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        return
    if proxy.refusal:
        writer.write(f"HTTP/1.1 {proxy.refusal}\r\nContent-Length: 0\r\n\r\n".encode())
        return
    port = int(target.rpartition(":")[2]) if method == "CONNECT" else urlsplit(target).port or 80
    there, back = await asyncio.open_connection("127.0.0.1", port)
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        path = "/" + target.split("/", 3)[3]
        back.write(f"{method} {path} {version}".encode() + head[head.index(b"\r\n") :])
    try:
        await asyncio.gather(_pump(reader, back), _pump(there, writer))
    finally:
        await _closed(back)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()
