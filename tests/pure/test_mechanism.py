"""The small parts of supervision: life cycle, clock, frames, marks, restart limits, memory guard, idle accounts."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import CODEC, FetchFailed, Forget, PageFailed
from batchpod.flow.accounts import Idle, StallClock
from batchpod.memory.guard import PATIENCE_S, Guard, Relief
from supervisor import marks
from supervisor.clock import Clock
from supervisor.events import Events
from supervisor.lifecycle import TABLE, Act, Cue, Life, LifecycleError, step
from supervisor.memory import Cgroup, Memory
from supervisor.process import thread_stack
from supervisor.restart import BackOff, RestartLimit
from supervisor.wire import MAX_PAYLOAD_BYTES, FrameBuffer, FrameError, bounded


def test_every_life_but_the_last_answers_every_cue_that_can_reach_it():
    for life in Life:
        for cue in Cue:
            answered = (life, cue) in TABLE
            timeless = cue is Cue.TIME_UP and life in (Life.RUNNING, Life.UNDYING)
            assert answered is not (life is Life.GONE or timeless)


def test_the_ladder_goes_from_asking_over_the_dump_to_the_kill():
    assert step(Life.RUNNING, Cue.STOP).act is Act.ASK
    assert step(Life.RUNNING, Cue.DUMP).act is Act.DUMP
    assert step(Life.DUMPING, Cue.TIME_UP).act is Act.KILL
    assert step(Life.KILLING, Cue.TIME_UP).state is Life.UNDYING
    with pytest.raises(LifecycleError, match="before: a, b"):
        step(Life.GONE, Cue.KILL, ("a", "b"))


def test_a_pause_of_the_machine_is_left_out_of_every_age_that_spans_it():
    clock = Clock()
    before = clock.now() - 100.0
    clock.note_pause(90.0)
    assert 9.0 < clock.age(before) < 11.0
    assert clock.age(clock.now()) < 1.0


@given(st.text(max_size=3000), st.integers(1, 10**6))
def test_a_bounded_text_always_fits_into_a_message(text: str, page: int):
    frame = CODEC.encode(FetchFailed(page, "failed", bounded(text), 10**12))
    assert len(frame) <= MAX_PAYLOAD_BYTES + 4


@given(st.lists(st.integers(1, 10**6), max_size=50), st.text(max_size=50), st.integers(1, 9))
def test_a_message_comes_out_as_it_went_in_however_the_bytes_are_cut(pages: list[int], text: str, size: int):
    text = text.encode("utf-8", "replace").decode()
    sent = [Forget(tuple(pages)), PageFailed(3, text, out_of_memory=True)]
    data, buffer = b"".join(CODEC.encode(m) for m in sent), FrameBuffer()
    payloads = [p for at in range(0, len(data), size) for p in buffer.feed(data[at : at + size])]
    assert [CODEC.decode(p) for p in payloads] == sent
    assert not buffer.torn


def test_a_message_over_the_size_that_a_pipe_writes_whole_is_refused():
    with pytest.raises(FrameError, match="a message may have 4092"):
        CODEC.encode(Forget(tuple(range(10**6, 10**6 + 1000))))


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'["Forget"]', b'["Os", [1]]', b'["Forget", [1, 2, 3]]', b"\xff"])
def test_bytes_that_are_no_message_are_refused(payload: bytes):
    with pytest.raises(FrameError):
        CODEC.decode(payload)


def test_a_header_that_announces_too_much_is_refused_before_anything_is_kept():
    with pytest.raises(FrameError, match="announces 5000000 bytes"):
        FrameBuffer().feed(struct.pack("!I", 5_000_000))


def test_a_mark_is_read_as_it_was_written_and_goes_when_it_is_cleared():
    fd = marks.create()
    writer, reader = marks.MarkWriter(fd), marks.MarkReader(fd)
    writer.mark(7, "TextRecognition", "ström-model 3/9")
    writer.mark(7, "TextRecognition", "ström-model 4/9", inside=False)
    writer.mark(8, "Segmentation")
    seven, eight = reader.tasks()
    assert (seven.task, seven.counter, seven.inside, seven.detail) == (7, 2, False, "ström-model 4/9")
    assert (eight.task, eight.step, eight.inside) == (8, "Segmentation", True)
    writer.clear(7)
    assert [m.task for m in reader.tasks()] == [8]
    writer.received(3)
    assert reader.received == 3
    reader.close()
    os.close(fd)


def test_more_tasks_than_slots_are_not_marked_and_harm_nothing():
    fd = marks.create()
    writer, reader = marks.MarkWriter(fd), marks.MarkReader(fd)
    for task in range(marks.SLOTS + 5):
        writer.mark(task)
    assert len(reader.tasks()) == marks.SLOTS
    writer.clear(marks.SLOTS + 1)
    reader.close()
    os.close(fd)


def test_restarts_are_limited_within_a_window_and_free_again_after_it():
    limit = RestartLimit(5, 600.0)
    assert [limit.allow(float(t)) for t in range(6)] == [True] * 5 + [False]
    assert limit.allow(601.0)


def test_the_standby_is_given_up_after_enough_failures_in_a_row():
    back_off = BackOff(tries=3)
    assert [back_off.failed(), back_off.failed()] == [1.0, 2.0]
    back_off.succeeded()
    waits = [back_off.failed() for _ in range(3)]
    assert waits == [1.0, 2.0, 4.0]
    assert back_off.give_up


def test_the_memory_guard_takes_one_step_after_the_other_and_ends_the_run_before_the_kernel_does():
    guard, tight = Guard(), Memory(100, 93)
    steps = [guard.judge(tight, now) for now in (0.0, 1.0, PATIENCE_S, 2 * PATIENCE_S, 3 * PATIENCE_S)]
    assert steps == [Relief.DROP_STANDBY, None, Relief.SHRINK_LOOKAHEAD, Relief.RECYCLE_GPU, None]
    assert guard.judge(Memory(100, 97), 99.0) is Relief.END_RUN
    assert guard.judge(Memory(100, 50), 99.0) is None
    assert guard.judge(tight, 100.0) is Relief.DROP_STANDBY
    assert guard.judge(None, 101.0) is None


@pytest.mark.parametrize(
    ("files", "group", "expected"),
    [
        ({"memory.max": "1000", "memory.stat": "anon 100\nfile 900\nshmem 20\nunevictable 3"}, "0::/", Memory(1000, 123)),
        ({"memory.max": "max", "memory.stat": "anon 1"}, "0::/", None),
        (
            {"memory/memory.limit_in_bytes": "1000", "memory/memory.stat": "total_rss 7\ntotal_shmem 2\ncache 99"},
            "4:memory:/",
            Memory(1000, 9),
        ),
        ({"memory/memory.limit_in_bytes": str((1 << 63) - 4096), "memory/memory.stat": ""}, "4:memory:/", None),
        ({}, "", None),
        ({"pod/memory.max": "500", "pod/memory.stat": "anon 5"}, "0::/pod", Memory(500, 5)),
    ],
)
def test_memory_is_read_from_either_kind_of_cgroup(
    tmp_path: Path, files: dict[str, str], group: str, expected: Memory | None
):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    proc = tmp_path / "cgroup-of-this-process"
    proc.write_text(group)
    assert Cgroup(tmp_path, proc).read() == expected


def test_idle_time_is_charged_to_the_cause_that_held_and_averaged_over_the_actors():
    stalls = StallClock()
    stalls.update(0.0, 2, {"gpu-0": Idle.NO_PAGE})
    stalls.update(4.0, 2, {"gpu-0": Idle.STORE, "gpu-1": Idle.STORE})
    stalls.update(5.0, 2, {})
    stalls.stop(100.0)
    assert (stalls.gpu_stall_s, stalls.store_stall_s) == (2.0, 1.0)
    stalls.update(200.0, 2, {})
    assert stalls.gpu_stall_s == 2.0


def test_events_are_numbered_kept_and_said():
    said: list[str] = []
    events = Events(said.append)
    events.note("kill", "is killed: hung", actor="gpu-0", incarnation=3, task="0007")
    events.note("slow-turn", "a turn took long", quiet=True)
    assert said == ["gpu-0#3 is killed: hung"]
    assert [e.kind for e in events.since(0)] == ["kill", "slow-turn"]
    assert [e.number for e in events.since(1)] == [2]


def test_the_stack_of_one_thread_is_found_in_a_dump_by_its_ident():
    dump = (
        "Thread 0x00007f0000000010 (most recent call first):\n"
        '  File "/usr/lib/python3/threading.py", line 5 in wait\n\n'
        "Current thread 0x00007f0000000020 (most recent call first):\n"
        '  File "/x/htrflow/models/trocr.py", line 12 in _predict\n'
        '  File "/x/actors/gpu/wraps.py", line 99 in wrapped\n'
    )
    assert thread_stack(dump, 0x7F0000000020, 2) == (
        "models/trocr.py:12 in _predict < gpu/wraps.py:99 in wrapped"
    )
    assert thread_stack(dump, 0x99) == ""
