"""Supervision of real processes: queues that outlive nobody, the ladder from the stack dump to the kill, the accounts."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psutil
import pytest

from supervisor import arena, lifecycle
from supervisor import loop as loop_module
from supervisor.clock import Clock
from supervisor.events import Events
from supervisor.lifecycle import STOP_SIGNALS, Life
from supervisor.loop import Ended, Happening, Loop, Said, Signalled, Stuck, Undying
from supervisor.output import Output, Stdout
from supervisor.process import Incarnation, Plan
from tests.freezing import frozen
from tests.ipc_child import CODEC, About, Do, Done, Job

T = TypeVar("T")
DEADLINE_S = 30.0


class Rig:
    """A loop, what it has said, and what has happened in it so far."""

    def __init__(self, loop: Loop, said: list[str]) -> None:
        self.loop, self.said = loop, said
        self.seen: list[Happening] = []

    def spawn(self, **descriptors: int) -> Incarnation:
        environment = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        plan = Plan("worker", "tests.ipc_child:main", CODEC, "tests.ipc_child:CODEC", None, environment, descriptors)
        return self.loop.spawn(plan, "a test")

    def turn(self) -> list[Happening]:
        new = self.loop.turn(0.05)
        self.seen += new
        return new

    def until(self, kind: type[T], what: Callable[[T], Any] = lambda _: True) -> T:
        """Turn until something of this kind has happened."""
        end = time.monotonic() + DEADLINE_S
        while True:
            found = next((s for s in self.seen if isinstance(s, kind) and what(s)), None)
            if found is not None:
                return found
            assert time.monotonic() < end, (kind, self.seen[-5:], self.said)
            self.turn()

    def messages(self, kind: type[T]) -> list[T]:
        return [s.message for s in self.seen if isinstance(s, Said) and isinstance(s.message, kind)]


@pytest.fixture
def rig() -> Iterator[Rig]:
    said: list[str] = []
    null = os.open(os.devnull, os.O_WRONLY)
    recorded: list[bytes] = []
    try:
        with Loop(Clock(), Events(said.append), Output(Stdout(null), recorded.append)) as loop:
            yield Rig(loop, said)
    finally:
        os.close(null)


def test_a_stop_that_comes_while_its_handlers_are_put_in_place_is_not_lost(monkeypatch: pytest.MonkeyPatch):
    install = signal.signal

    def signalled_at_once(number: int, handler: Any) -> Any:
        before = install(number, handler)
        signal.raise_signal(number)
        return before

    null = os.open(os.devnull, os.O_WRONLY)
    loop = Loop(Clock(), Events(lambda text: None), Output(Stdout(null), lambda data: None))
    monkeypatch.setattr("supervisor.loop.signal.signal", signalled_at_once)
    with loop:
        monkeypatch.undo()
        assert {s.number for s in loop.turn() if isinstance(s, Signalled)} == set(STOP_SIGNALS)
    os.close(null)


def test_writers_killed_at_any_moment_leave_whole_messages_an_end_of_file_and_a_known_end(rig: Rig):
    chance = random.Random(4)
    for _ in range(12):
        child = rig.spawn()
        child.outgoing.put(Do("flood"))
        rig.until(Said, lambda said, child=child: said.child is child)  # type: ignore[misc]
        end = time.monotonic() + chance.uniform(0.0, 0.03)
        while time.monotonic() < end:
            rig.turn()
        os.kill(child.pid, 9)
        ended = rig.until(Ended, lambda e, child=child: e.child is child)  # type: ignore[misc]
        assert ended.exit.signal_name == "SIGKILL"
        assert ended.exit.code is None
        assert not ended.exit.torn
        numbers = [s.message.number for s in rig.seen if isinstance(s, Said) and s.child is child]
        assert numbers == list(range(len(numbers)))
        assert rig.seen[-1] is ended
        rig.seen.clear()


@pytest.mark.parametrize("how", ["hang", "hang_gil", "hang_child"])
def test_what_was_said_before_a_hang_arrives_and_the_dump_shows_where_it_stands(rig: Rig, how: str):
    child = rig.spawn()
    child.outgoing.put(Do(how))
    about = rig.until(Said, lambda said: isinstance(said.message, About)).message
    (mark,) = child.marks.tasks()
    assert (mark.task, mark.step, mark.detail, mark.inside) == (7, "doing", how, True)
    rig.loop.dump_and_kill(child, "it hangs")
    ended = rig.until(Ended)
    assert ended.exit.signal_name == "SIGKILL"
    assert ended.exit.asked == "it hangs"
    assert "ipc_child.py" in ended.exit.stacks
    assert [m.task for m in ended.exit.tasks] == [7]
    assert [e.kind for e in rig.loop.events.since()] == ["spawn", "dump", "kill", "exit"]
    if about.pid:
        psutil.wait_procs([psutil.Process(about.pid)] if psutil.pid_exists(about.pid) else [], timeout=5)
        assert not psutil.pid_exists(about.pid)


def test_a_stopped_process_gives_no_dump_and_is_killed_all_the_same(rig: Rig):
    child = rig.spawn()
    child.outgoing.put(Job(1))
    rig.until(Said)
    os.kill(child.pid, 19)
    rig.loop.dump_and_kill(child, "it does not move")
    ended = rig.until(Ended)
    assert (ended.exit.signal_name, ended.exit.stacks) == ("SIGKILL", "")
    assert any("is killed in kernel state T" in line for line in rig.said)


def test_a_child_that_reads_nothing_stalls_nobody_and_is_found_out(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop_module, "INBOX_STUCK_S", 0.5)
    child = rig.spawn()
    child.outgoing.put(Do("deaf"))
    rig.until(Said)
    for number in range(200):
        child.outgoing.put(Done(number, "x" * 4000))
    assert child.outgoing.depth >= 190
    assert rig.until(Stuck).child is child
    for _ in range(5):
        rig.turn()
    assert sum(isinstance(s, Stuck) for s in rig.seen) == 1


def test_leaving_with_unread_messages_of_dead_and_live_children_waits_for_nobody(rig: Rig):
    dead, live = rig.spawn(), rig.spawn()
    for child in (dead, live):
        child.outgoing.put(Do("flood"))
    rig.until(Said, lambda said: said.child is dead)
    rig.until(Said, lambda said: said.child is live)
    os.kill(dead.pid, 9)


def test_jobs_survive_the_deaths_of_their_workers_and_none_is_reported_twice(rig: Rig):
    """The accounts are the parent's: what a dead worker had sent is taken first, the rest is asked for again."""
    chance, jobs, kills = random.Random(13), 1500, 8
    waiting, asked, done = list(range(jobs)), dict[int, None](), Counter[int]()
    worker = rig.spawn()
    kill_at = sorted(chance.sample(range(50, jobs - 50), kills))
    while len(done) < jobs:
        while waiting and len(asked) < 20:
            number = waiting.pop(0)
            asked[number] = None
            worker.outgoing.put(Job(number))
        for happening in rig.turn():
            if isinstance(happening, Said):
                done[happening.message.number] += 1
                del asked[happening.message.number]
            elif isinstance(happening, Ended):
                waiting[:0] = asked
                asked.clear()
                worker = rig.spawn()
        if kill_at and len(done) >= kill_at[0]:
            kill_at.pop(0)
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, 9)
    assert set(done.values()) == {1}
    assert not kill_at


def test_anonymous_memory_is_shared_with_a_spawned_child(rig: Rig):
    memory = arena.create(4096)
    try:
        with arena.view(memory, 4096, writable=True) as ours:
            ours[:5] = b"hello"
            child = rig.spawn(memory=memory)
            child.outgoing.put(Do("read"))
            rig.until(Said, lambda said: said.message.number == 1)
            assert rig.messages(Done)[0].text == "hello"
            assert bytes(ours[:5]) == b"child"
    finally:
        os.close(memory)


def test_a_child_is_started_from_the_main_thread_only(rig: Rig):
    """A child that is bound to its parent's life dies with the thread that started it."""
    errors: list[BaseException] = []

    def start() -> None:
        try:
            rig.spawn()
        except RuntimeError as e:
            errors.append(e)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert len(errors) == 1
    assert rig.loop.children == []


def test_a_process_that_not_even_sigkill_ends_is_reported_with_its_kernel_state(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(lifecycle.WITHIN_S, Life.KILLING, 0.3)
    child = rig.spawn()
    child.outgoing.put(Job(1))
    rig.until(Said)
    with frozen(child.pid):
        rig.loop.kill(child, "a test")
        undying = rig.until(Undying)
        assert undying.child is child
        assert undying.state == "D"
    rig.until(Ended)
