"""A small child for the supervision tests: it does jobs, floods its queue, hangs in every way there is."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import threading
import time
from dataclasses import dataclass

from supervisor.queues import Channel
from supervisor.wire import Codec


@dataclass(frozen=True, slots=True)
class Job:
    """Answered by `Done`."""

    number: int


@dataclass(frozen=True, slots=True)
class Done:
    number: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Do:
    """Something other than a job: `flood`, `hang`, `hang_gil`, `hang_child`, `deaf`, `read`."""

    what: str


@dataclass(frozen=True, slots=True)
class About:
    """Sent just before it: the pid of the subprocess, or 0."""

    what: str
    pid: int = 0


CODEC = Codec(Job, Done, Do, About)


def main(channel: Channel, spec: object, descriptors: dict[str, int]) -> None:
    while True:
        channel.marks.beat()
        channel.wait(1.0)
        for message in channel.take():
            if isinstance(message, Job):
                channel.marks.mark(message.number, "job")
                channel.send(Done(message.number))
                channel.marks.clear(message.number)
            else:
                do(message.what, channel, descriptors)


def do(what: str, channel: Channel, descriptors: dict[str, int]) -> None:
    channel.marks.mark(7, "doing", what)
    if what == "flood":
        for number in range(10**9):
            channel.send(Done(number, "x" * (number * 97 % 4000)))
    elif what == "read":
        with mmap.mmap(descriptors["memory"], 4096) as memory:
            channel.send(Done(0, memory[:5].decode()))
            memory[:5] = b"child"
        channel.send(Done(1))
    elif what == "hang_child":
        process = subprocess.Popen(["sleep", "3600"])
        channel.send(About(what, process.pid))
        process.wait()
    else:
        channel.send(About(what))
        hang(what)


def hang(what: str) -> None:
    if what == "hang_gil":
        ctypes.PyDLL(None).sleep(3600)
    elif what == "deaf":
        threading.Event().wait()
    else:
        time.sleep(3600)
