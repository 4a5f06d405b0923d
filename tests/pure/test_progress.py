"""progress.json: its fields, and when it is written."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from batchpod.reporting.progress import EVERY_S, Cadence, Progress
from batchpod.reporting.terminal import Standing, clock, live_line, minute_line

STARTED = Progress("setup", started_at=1_700_000_000.9)


def test_the_document_has_the_agreed_fields() -> None:
    assert json.loads(STARTED.body(1_700_000_001.2)) == {
        "stage": "setup",
        "pages_total": 0,
        "pages_done": 0,
        "pages_failed": 0,
        "last_page": None,
        "last_error": None,
        "errors": 0,
        "viewer_published": False,
        "started_at": "2023-11-14T22:13:20Z",
        "updated_at": "2023-11-14T22:13:21Z",
    }


def test_pages_are_named_and_the_last_error_is_redacted_then_cut() -> None:
    reason = "http://u:p@h/1.jpg?token=hush " + "å" * 400
    progress = replace(STARTED, last_page=12, last_error=(3, reason), pages_total=20, pages_done=11, pages_failed=1)
    document = json.loads(progress.body(0))
    assert document["last_page"] == "0012"
    assert document["last_error"]["page"] == "0003"
    assert document["last_error"]["error"].startswith("http://h/1.jpg åå")
    assert len(document["last_error"]["error"]) == 300


def test_a_failed_run_says_so_and_keeps_the_rest() -> None:
    assert json.loads(replace(STARTED, pages_done=3).failed().body(0)) == json.loads(
        replace(STARTED, pages_done=3, stage="failed").body(0)
    )


def test_a_new_stage_is_written_at_once_and_outcomes_once_a_second() -> None:
    cadence = Cadence()
    assert cadence.due(STARTED, 10.0)
    assert not cadence.due(STARTED, 100.0)
    assert cadence.due(replace(STARTED, stage="stream"), 100.0)
    one, two = (replace(STARTED, stage="stream", pages_done=n) for n in (1, 2))
    assert not cadence.due(one, 100.4)
    assert cadence.due_at() == 101.0
    assert not cadence.due(two, 100.9)
    assert cadence.due(two, 101.0)
    assert cadence.due_at() is None
    assert cadence.due(replace(two, stage="verify"), 101.1)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5), st.sampled_from(["stream", "verify"]))))
def test_the_last_state_is_always_written_and_outcomes_never_too_often(
    steps: list[tuple[float, int, str]],
) -> None:
    cadence, now = Cadence(), 0.0
    written: list[tuple[float, Progress]] = []
    state = STARTED

    def offer() -> None:
        if cadence.due(state, now):
            written.append((now, state))

    for wait_s, done, stage in steps:
        now += wait_s
        state = replace(STARTED, pages_done=done, stage=stage)
        offer()
    if (due_at := cadence.due_at()) is not None:
        now = max(now, due_at)
        offer()
    assert not written or written[-1][1] == state
    for (before_at, before), (after_at, after) in pairwise(written):
        assert before.stage != after.stage or after_at >= before_at + EVERY_S


def test_the_live_line_never_wraps() -> None:
    standing = Standing("R0001203", "stream", 764, 638, 412, 3, 1, 1.9)
    assert live_line(standing, 200) == (
        "\r\x1b[KR0001203 stream 12:44   412/638 pages   3 failed   1 deferred   1.9 pages/s   left 1:56"
    )
    for columns in (0, 1, 20):
        assert len(live_line(standing, columns).removeprefix("\r\x1b[K")) <= max(0, columns - 1)


def test_the_minute_line_leaves_out_what_is_not_known_yet() -> None:
    assert minute_line(Standing("R", "setup", 5)) == "[R] setup"
    assert minute_line(Standing("R", "stream", 60, total=10, done=10)) == "[R] stream, 10/10 pages"


def test_a_clock_shows_hours_only_when_there_are_any() -> None:
    assert [clock(s) for s in (7.9, 764, 3723)] == ["0:07", "12:44", "1:02:03"]
