"""The live screen: a snapshot a second from the supervisor, keys for everything behind it.

Owns the terminal and the keys; what is drawn is screen.py's and render.py's. Asks for nothing but what a person asks
for: the snapshots come by themselves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from supervisor.debug import client, protocol, render, screen, wording
from supervisor.debug.client import Reply, Unreachable, reply_of
from supervisor.debug.protocol import MAX_REPLY_BYTES, Refused
from supervisor.wire import FrameBuffer, FrameError

AGAIN_S = 1.0
REDRAW_S = 0.5
LEAVE_S = 2.0
HELP = """\
FOR    how long the actor shows no progress in what it does; yellow at half of LIMIT, red at four fifths of it
LIMIT  after so long it is ended, and the page that caused it is blamed
BEAT   when its dispatch loop last turned
PAGE   what it has in hand: the page that FOR is about, and how many others
RST    restarts so far;  INC  the number of this start

j k    move                     enter  the actor's limits, transitions and exits
s      its stacks               R      restart it once what it has in hand is done (asks first)
p      pages on their way       e      the last events
a      the pixel arena          f      freeze the screen, and go on
q      quit                     esc    back
"""


class Feed:
    """The asynchronous client of one socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self.path, self.timeout_s = path, timeout_s

    async def ask(self, command: str, arguments: dict[str, Any]) -> Reply:
        """One request and its reply.

        Raises:
            Unreachable, Refused: as `client.ask`.
        """
        async for reply in self.follow(command, arguments, stream=False):
            return reply
        raise client.why_not(self.path, ConnectionResetError())

    async def follow(self, command: str, arguments: dict[str, Any], *, stream: bool = True) -> AsyncIterator[Reply]:
        """Replies as they come; ends in Unreachable when the run does."""
        writer = None
        try:
            async with asyncio.timeout(self.timeout_s):
                reader, writer = await asyncio.open_unix_connection(str(self.path))
                client.trust(writer.get_extra_info("socket"), self.path)
                writer.write(protocol.request(command, arguments, stream=stream))
                data = await reader.read(1 << 16)
            frames = FrameBuffer(MAX_REPLY_BYTES)
            while data:
                for payload in frames.feed(data):
                    yield reply_of(payload)
                data = await reader.read(1 << 16)
        except TimeoutError:
            raise client.silence(self.path, self.timeout_s) from None
        except FrameError:
            raise client.foreign(self.path) from None
        except OSError as e:
            raise client.why_not(self.path, e) from None
        finally:
            if writer is not None:
                writer.close()
        if stream:
            raise client.why_not(self.path, ConnectionResetError())


class Detail(ModalScreen[None]):
    """One command's answer over the whole screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "back"),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
    ]

    def __init__(self, content: RenderableType) -> None:
        super().__init__()
        self._content = content

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._content, id="detail", markup=False)
        yield Static(Text(" j/k scroll   esc back"), classes="keys")

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


class Confirm(ModalScreen[bool]):
    """Asks before anything is done to the run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)"),
        Binding("n,escape,q", "answer(False)"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{self._question}   y yes   n no", style="bold yellow"), id="question", markup=False)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Watch(App[None]):
    """`feed` gives the snapshots and answers what the keys ask for."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; }
    .keys { dock: bottom; height: 1; color: ansi_cyan; }
    #said { dock: bottom; height: auto; margin-bottom: 1; }
    #question { dock: bottom; height: auto; }
    Confirm { background: transparent; }
    VerticalScroll { scrollbar-size: 1 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)"),
        Binding("k,up", "move(-1)"),
        Binding("enter", "actor('show')"),
        Binding("s", "actor('stack')"),
        Binding("e", "look('events')"),
        Binding("p", "look('pages')"),
        Binding("a", "look('arena')"),
        Binding("R", "restart"),
        Binding("f", "freeze"),
        Binding("question_mark", "help"),
        Binding("q,ctrl+c", "quit"),
    ]

    def __init__(self, feed: Feed) -> None:
        super().__init__(ansi_color=True)
        self._feed = feed
        self._data: dict[str, Any] | None = None
        self._taken_at = 0.0
        self._age_s = 0.0
        self._problem = ""
        self.frozen = False
        self.selected = ""

    def compose(self) -> ComposeResult:
        yield Static(id="view", markup=False)
        yield Static(id="said", markup=False)
        yield Static(id="keys", classes="keys", markup=False)

    def on_mount(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Ended by these it would leave the terminal without echo and with the mouse reported.
            asyncio.get_running_loop().add_signal_handler(number, self._leave)
        self.set_interval(REDRAW_S, self.redraw)
        self.run_worker(self._follow(), exit_on_error=True)

    def _leave(self) -> None:
        """End the screen; where its terminal is gone, what is still to be written there could hold it for ever."""
        at_last = threading.Timer(LEAVE_S, os._exit, (0,))
        at_last.daemon = True
        at_last.start()
        self.exit()

    def on_resize(self) -> None:
        self.redraw()

    async def _follow(self) -> None:
        """Take snapshots for ever: after an error again every second, since a run may come back in the same place."""
        while True:
            try:
                async for reply in self._feed.follow("watch", {}):
                    self._problem = ""
                    if not self.frozen:
                        self._take(reply)
            except (Unreachable, Refused) as e:
                self._problem = str(e)
            self.redraw()
            await asyncio.sleep(AGAIN_S)

    def _take(self, reply: Reply) -> None:
        self._data, self._age_s = wording.printable(reply.data), reply.age_s
        self._taken_at = asyncio.get_running_loop().time()
        names = self._names()
        if self.selected not in names:
            self.selected = names[0] if names else ""
        self.redraw()

    @property
    def age_s(self) -> float:
        """How old the snapshot on the screen is by now."""
        return self._age_s + asyncio.get_running_loop().time() - self._taken_at

    def _names(self) -> list[str]:
        return [row["actor"] for row in self._data["actors"]] if self._data else []

    def redraw(self) -> None:
        lines: list[Text] = []
        if self._data is not None:
            # A frozen screen is old on purpose, and says so itself.
            lines = screen.draw(self._data, 0.0 if self.frozen else self.age_s, self.size.width, self.selected)
        if self.frozen:
            lines.append(Text(f"frozen {self.age_s:.0f} s ago: f goes on", style="bold yellow"))
        if self._problem:
            lines.append(Text(self._problem, style="bold red"))
        self._put("#view", Text("\n").join(lines))
        self._put("#keys", screen.keys(self.size.width))

    def say(self, text: str, style: str = "") -> None:
        """One line above the keys, until the next."""
        self._put("#said", Text(text, style=style))

    def _put(self, where: str, text: Text) -> None:
        """Show a text in one of the main screen's parts; another screen may lie over it."""
        for part in self.screen_stack[0].query(where).results(Static):
            part.update(text)

    # ------------------------------------------------------------------------------------------------------- keys

    def action_move(self, by: int) -> None:
        names = self._names()
        if names:
            self.selected = names[(names.index(self.selected) + by) % len(names)]
            self.redraw()

    def action_freeze(self) -> None:
        self.frozen = not self.frozen
        self.redraw()

    def action_help(self) -> None:
        self.push_screen(Detail(Text(HELP)))

    async def action_look(self, command: str) -> None:
        await self._detail(command, {"lines": 200} if command == "events" else {})

    async def action_actor(self, command: str) -> None:
        if self.selected:
            await self._detail(command, {"actor": self.selected})

    async def _detail(self, command: str, arguments: dict[str, Any]) -> None:
        try:
            reply = await self._feed.ask(command, arguments)
        except (Unreachable, Refused) as e:
            self.say(str(e), "bold red")
            return
        self.say("")
        self.push_screen(Detail(render.rendered(command, reply.data, reply.age_s, self.size.width)))

    def action_restart(self) -> None:
        """Restart the chosen actor, once the person has said yes."""
        actor = self.selected
        if not actor:
            return

        async def decided(yes: bool | None) -> None:
            if not yes:
                return
            try:
                reply = await self._feed.ask("restart", {"actor": actor})
                self.say(reply.data["done"], "green")
            except (Unreachable, Refused) as e:
                self.say(str(e), "bold red")

        self.push_screen(Confirm(f"Restart {actor} once what it has in hand is done?"), decided)
