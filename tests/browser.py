"""A headless Chromium that is spoken to over its DevTools protocol: just enough to look at a page.

Owns the process and the WebSocket; knows nothing of what is looked at.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

WAIT_S = 60.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-port=0", "--window-size=1400,900",
)  # fmt: skip


class Tab:
    """One page of a running browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._asked = 0

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One DevTools command and its result; raises RuntimeError with the browser's message where it fails."""
        self._asked += 1
        await self._socket.send_json({"id": self._asked, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=WAIT_S)
            if answer.get("id") == self._asked:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                result: dict[str, Any] = answer["result"]
                return result

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression (or a promise) gives, as JSON values."""
        done = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"].get("description"))
        return done["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Poll until the expression is true; raises TimeoutError with what the page shows after WAIT_S."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while not (found := await self.value(expression)):
                    await asyncio.sleep(0.1)
                return found
        raise TimeoutError(f"{expression} stayed false; the page says: {await self.value('document.body.innerText')}")

    async def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode((await self.ask("Page.captureScreenshot"))["data"])


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Tab]:
    """Start a browser on `url` and end it afterwards."""
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        command = ["chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        # The browser keeps a socket in its temporary directory, and leaves it there when it is terminated.
        environment = os.environ | {"TMPDIR": profile, "HOME": profile}
        silent = subprocess.DEVNULL
        process = subprocess.Popen(command, env=environment, stdout=silent, stderr=silent)
        try:
            async with aiohttp.ClientSession() as session:
                socket_url = await _page_socket(session, Path(profile, "DevToolsActivePort"))
                async with session.ws_connect(socket_url, max_msg_size=0) as socket:
                    tab = Tab(socket)
                    await tab.ask("Page.navigate", url=url)
                    await tab.until("location.protocol !== 'about:' && document.readyState === 'complete'")
                    yield tab
        finally:
            process.terminate()
            process.wait()


async def _page_socket(session: aiohttp.ClientSession, file: Path) -> str:
    async with asyncio.timeout(WAIT_S):
        while True:
            with contextlib.suppress(FileNotFoundError, IndexError, aiohttp.ClientConnectionError, StopIteration):
                port = int(file.read_text().splitlines()[0])
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = await answer.json()
                return next(str(page["webSocketDebuggerUrl"]) for page in pages if page["type"] == "page")
            await asyncio.sleep(0.05)
