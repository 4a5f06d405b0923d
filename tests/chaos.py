"""What is done to the processes of a run at random moments: killed, stopped for a while, stopped for good."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from tests.volume import Running

ACTORS = ("fetcher", "uploader", "gpu-0", "gpu-1", "standby")


def finished(run: Running) -> int:
    return len(re.findall(r"^page \d+ (?:ok|failed|deferred)", run.log, re.MULTILINE))


@dataclass
class Chaos:
    """Strikes a run; `done` is what was done, in order."""

    run: Running
    chance: random.Random
    done: list[str] = field(default_factory=list)

    def kill(self, actor: str) -> bool:
        return self._send(actor, signal.SIGKILL, "kill")

    def stop(self, actor: str, for_s: float | None = None) -> bool:
        """SIGSTOP, for a while or for good."""
        process = self._process(actor)
        struck = self._send(actor, signal.SIGSTOP, "stop" if for_s else "stop for good")
        if struck and for_s and process is not None:
            time.sleep(for_s)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        return struck

    def _process(self, actor: str) -> psutil.Process | None:
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            return psutil.Process(self.run.children(actor)[-1])
        return None

    def _send(self, actor: str, number: int, deed: str) -> bool:
        process = self._process(actor)
        if process is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
            self.done.append(f"{deed} {actor}")
            return True
        return False

    def moments(self, pages: int, least_s: float, most_s: float) -> Iterator[None]:
        """Random moments, until `pages` have their outcome or the run is over."""
        while finished(self.run) < pages and self.run.process.poll() is None:
            time.sleep(self.chance.uniform(least_s, most_s))
            yield


def within_the_rules(run: Running, seed: int, pages: int, most: int) -> list[str]:
    """Never end a gpu process twice with the same page in hand, never stop anything for long, stay under the limits of
    restarts; at most `most` deeds."""
    chaos = Chaos(run, random.Random(seed))
    kills = {"fetcher": 0, "uploader": 0}
    between, gpu_killed_at = 4, -4
    for _ in chaos.moments(pages - 8, 0.05, 0.5):
        actor, deed = (
            chaos.chance.choice(["fetcher", "uploader", "gpu-0"]),
            chaos.chance.choice(["kill", "kill", "stop"]),
        )
        if deed == "stop":
            chaos.stop(actor, chaos.chance.uniform(0.1, 0.6))
        elif actor != "gpu-0":
            if kills[actor] < 4 and chaos.kill(actor):
                kills[actor] += 1
        elif finished(run) - gpu_killed_at >= between and chaos.kill(actor):
            gpu_killed_at = finished(run)
        if len(chaos.done) >= most:
            break
    return chaos.done


def without_rules(run: Running, seed: int, pages: int) -> list[str]:
    """From the first moment on, whatever chance says; each seed has its own pace and its own victims."""
    chaos = Chaos(run, random.Random(seed))
    weights = [chaos.chance.uniform(0.05, 1.0) for _ in ACTORS]
    pace_s = chaos.chance.uniform(0.4, 2.5)
    for _ in chaos.moments(pages, 0.05, pace_s):
        actor = chaos.chance.choices(ACTORS, weights)[0]
        match chaos.chance.choice(["kill", "kill", "stop", "for good"]):
            case "kill":
                chaos.kill(actor)
            case "stop":
                chaos.stop(actor, chaos.chance.uniform(0.05, 0.6))
            case _:
                chaos.stop(actor)
    return chaos.done
