"""The live screen over a real run, driven with keys: by textual's pilot, and once in a real terminal under tmux."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
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


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: the screen is not tried in a terminal")
def test_the_screen_works_in_a_real_terminal(hung: Debugged, tmp_path: Path):
    command = shlex.join([sys.executable, "-m", "supervisor", "watch", "--socket", str(hung.socket)])

    def tmux(*arguments: str) -> str:
        asked = ["tmux", "-S", f"{hung.socket.parent}/tmux", "-f", "/dev/null", *arguments]
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout

    def screen() -> str:
        return tmux("capture-pane", "-p")

    try:
        tmux(
            "new-session",
            "-d",
            "-x",
            "120",
            "-y",
            "30",
            f"env -u COLUMNS -u LINES {command}; echo ended with $?; exec cat",
        )
        wait_for(lambda: "gpu-0" in screen() and "q quit" in screen(), "the screen")
        assert any(line.startswith("ACTOR") for line in screen().splitlines())
        tmux("send-keys", "j")
        tmux("send-keys", "s")
        wait_for(lambda: "page 0003" in screen() and "esc back" in screen(), "the stack")
        tmux("send-keys", "Escape")
        wait_for(lambda: "q quit" in screen(), "the way back")
        tmux("send-keys", "R")
        wait_for(lambda: "Restart gpu-0" in screen(), "the question")
        tmux("send-keys", "n")
        wait_for(lambda: "Restart gpu-0" not in screen(), "no restart")
        tmux("send-keys", "q")
        wait_for(lambda: "ended with 0" in screen(), "the end")
    finally:
        tmux("kill-server")
        Path(f"{hung.socket.parent}/tmux").unlink(missing_ok=True)
    assert hung.ask("ping").code == 0
