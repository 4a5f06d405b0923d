"""The live screen over a real run, driven with keys: by textual's pilot, and once in a real terminal under tmux."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from supervisor.debug.watch import Confirm, Detail, Feed, Watch
from tests.debug_run import Debugged, standing_still
from tests.gpu_process import ROOT
from tests.volume import wait_for

LIMIT_S = 30.0
SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=["80 columns", "160 columns"])


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory, clean_environment: Path) -> Iterator[Debugged]:
    with standing_still(tmp_path_factory.mktemp("watched")) as run:
        yield run


class Seen:
    """The screen as a person reads it."""

    def __init__(self, app: Watch, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        """What is on the terminal, line by line."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in lines)

    async def until(self, what: Callable[[], Any]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not what():
            assert time.monotonic() < deadline, f"it did not come; the screen:\n{self.text}"
            await self.pilot.pause(0.05)

    async def shows(self, *words: str) -> None:
        await self.until(lambda: all(word in self.text for word in words))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)


@asynccontextmanager
async def watching(hung: Debugged, size: tuple[int, int]) -> AsyncIterator[Seen]:
    app = Watch(Feed(hung.socket, 10.0))
    async with app.run_test(size=size) as pilot:
        seen = Seen(app, pilot)
        await seen.shows("ACTOR", "gpu-0", hung.volume.ref)
        yield seen


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


@SIZES
def test_the_screen_shows_the_run_and_every_actor_in_the_width_there_is(hung: Debugged, size: tuple[int, int]):
    async def scene() -> None:
        async with watching(hung, size) as seen:
            await seen.shows("2/6 pages", "transcribing 2", "TextRecognition reader", "? help   q quit")
            lines = seen.text.splitlines()
            titles = next(line.split() for line in lines if line.startswith("ACTOR"))
            assert "LIMIT" in titles
            assert ("CPU" in titles) == (size[0] == 160)
            first = next(line for line in lines if line.startswith("gpu-0"))
            assert ("0003 +1" in first) == (size[0] == 160)
            assert [line.split()[0] for line in lines if line.split()[1:2] == ["1"]] == [
                "fetcher", "gpu-0", "standby", "uploader",
            ]  # fmt: skip

    play(scene())


@SIZES
def test_keys_lead_to_everything_behind_the_screen_and_back(hung: Debugged, size: tuple[int, int]):
    async def scene() -> None:
        async with watching(hung, size) as seen:
            assert seen.app.selected == "fetcher"
            await seen.press("j")
            assert seen.app.selected == "gpu-0"
            await seen.press("k", "k")
            assert seen.app.selected == "uploader"
            await seen.press("down", "down")
            assert seen.app.selected == "gpu-0"
            for key, words in (
                ("enter", ("limits", "page without progress", "last 1 transitions")),
                ("s", ("gpu-0#1 (pid ", "page 0003", "no progress for")),
                ("e", ("stage stream", "standby#1 started")),
                ("p", ("PAGE", "0003", "transcribing")),
                ("a", ("HOLDER", "gpu-0#1")),
                ("question_mark", ("how long the actor shows no progress",)),
            ):
                await seen.press(key)
                await seen.shows(*words)
                assert isinstance(seen.app.screen, Detail)
                await seen.press("j", "k", "escape")
                await seen.until(lambda: not isinstance(seen.app.screen, Detail))
            await seen.shows("ACTOR")

    play(scene())


@SIZES
def test_a_restart_is_asked_about_before_it_is_done(hung: Debugged, size: tuple[int, int]):
    async def scene() -> None:
        async with watching(hung, size) as seen:
            await seen.press("k", "R")
            await seen.shows("Restart uploader once what it has in hand is done?")
            assert isinstance(seen.app.screen, Confirm)
            await seen.press("n")
            await seen.until(lambda: not isinstance(seen.app.screen, Confirm))
            assert not hung.ask("exits", "--json").json["exits"]

    play(scene())


def test_a_frozen_screen_stands_still_and_says_so(hung: Debugged):
    async def scene() -> None:
        async with watching(hung, (160, 50)) as seen:
            await seen.press("f")
            await seen.shows("frozen 0 s ago: f goes on")
            frozen = [line for line in seen.text.splitlines() if line.startswith("gpu-0")]
            await seen.shows("frozen 2 s ago")
            assert [line for line in seen.text.splitlines() if line.startswith("gpu-0")] == frozen
            await seen.press("f")
            await seen.until(lambda: "frozen" not in seen.text)
            await seen.until(lambda: [s for s in seen.text.splitlines() if s.startswith("gpu-0")] != frozen)

    play(scene())


def test_a_snapshot_that_is_not_renewed_is_said_in_red(hung: Debugged):
    async def scene() -> None:
        async with watching(hung, (160, 50)) as seen:
            hung.running.kill(signal.SIGSTOP)
            try:
                await seen.shows("old: the supervisor's loop does not publish, or has ended")
                strips = seen.app.screen._compositor.render_strips()
                stale = [part for strip in strips for part in strip if part.text.startswith("this snapshot is")]
                assert [part.style.color.number for part in stale if part.style and part.style.color] == [1]
            finally:
                hung.running.kill(signal.SIGCONT)
            await seen.until(lambda: "does not publish" not in seen.text)

    play(scene())


class Terminal:
    """`watch` in a real terminal under tmux, as the only thing in it; what comes after it is `stty`."""

    def __init__(self, hung: Debugged, tmp_path: Path, size: tuple[int, int]) -> None:
        self._socket, self._pid = f"{hung.socket.parent}/tmux", tmp_path / "pid"
        watch = shlex.join([sys.executable, "-m", "supervisor", "watch", "--socket", str(hung.socket)])
        run = f"sh -c 'echo $$ > {self._pid}; exec env -u COLUMNS -u LINES {watch}'"
        columns, rows = map(str, size)
        after = "echo ended with $?; stty -a; exec cat"
        self.tmux("new-session", "-d", "-x", columns, "-y", rows, f"{run}; {after}")

    def tmux(self, *arguments: str) -> str:
        asked = ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments]
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def shows(self, *words: str) -> None:
        wait_for(lambda: all(word in self.screen for word in words), f"{words} on the screen:\n{self.screen}")

    def signal(self, number: int) -> None:
        os.kill(int(self._pid.read_text()), number)

    def close(self) -> None:
        self.tmux("kill-server")
        Path(self._socket).unlink(missing_ok=True)


@pytest.fixture
def terminal(hung: Debugged, tmp_path: Path) -> Iterator[Callable[[int, int], Terminal]]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: the screen is not tried in a terminal")
    with ExitStack() as stack:

        def opened(columns: int, rows: int) -> Terminal:
            made = Terminal(hung, tmp_path, (columns, rows))
            stack.callback(made.close)
            return made

        yield opened
    assert hung.ask("ping").code == 0


def test_the_screen_works_in_a_real_terminal(terminal: Callable[[int, int], Terminal]):
    seen = terminal(120, 30)
    seen.shows("gpu-0", "q quit")
    assert any(line.startswith("ACTOR") for line in seen.screen.splitlines())
    seen.tmux("send-keys", "j")
    seen.tmux("send-keys", "s")
    seen.shows("page 0003", "esc back")
    seen.tmux("send-keys", "Escape")
    seen.shows("q quit")
    seen.tmux("send-keys", "R")
    seen.shows("Restart gpu-0")
    seen.tmux("send-keys", "n")
    wait_for(lambda: "Restart gpu-0" not in seen.screen, "no restart")
    seen.tmux("send-keys", "q")
    seen.shows("ended with 0", " icanon", " echo ")


def test_the_screen_follows_the_size_of_its_terminal(terminal: Callable[[int, int], Terminal]):
    seen = terminal(20, 12)
    seen.shows("2/6 pages", "q quit")
    seen.tmux("resize-window", "-x", "160", "-y", "30")
    seen.shows("LAST EXIT", "gpu-0")
    seen.tmux("resize-window", "-x", "80", "-y", "24")
    wait_for(lambda: "LAST EXIT" not in seen.screen and "LIMIT" in seen.screen, "fewer columns")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_the_screen_and_leaves_the_terminal_as_it_was(
    terminal: Callable[[int, int], Terminal], number: signal.Signals
):
    seen = terminal(80, 24)
    seen.shows("gpu-0", "q quit")
    seen.signal(number)
    seen.shows("ended with 0", " icanon", " echo ")
