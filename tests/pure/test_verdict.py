"""What the outcomes of a run's pages make of the run."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fetcher.source import NO_IMAGE
from batchpod.errors import Cause, ConfigError, Permanent, Stopped, Transient
from batchpod.verdict import LAST_ATTEMPT_SUFFIX, ExitCode, Publish, Tally, Trouble, Verdict, after_verify, verdict_of

LOST = "recognized text not exported: lines need a region above them"


def tally(total: int, ok: int = 0, skipped: int = 0, **rest: Any) -> Tally:
    return Tally(total, ok, skipped, rest.pop("failed", {}), rest.pop("deferred", {}), **rest)


def pages(count: int, reason: str, first: int = 1) -> Mapping[int, str]:
    return {page: reason for page in range(first, first + count)}


def failure_of(tally: Tally) -> Verdict:
    verdict = after_verify(tally)
    assert isinstance(verdict, Verdict)
    return verdict


def lost(*numbers: int) -> dict[int, Trouble]:
    return dict.fromkeys(numbers, Trouble.TEXT_LOST)


def test_a_volume_whose_pages_all_came_out_is_published() -> None:
    assert after_verify(tally(3, ok=2, skipped=1)) == Publish({})


def test_a_failed_page_does_not_fail_the_volume() -> None:
    assert after_verify(tally(3, ok=1, failed=pages(2, "HTTP 404"))) == Publish({})


def test_a_deferred_page_is_left_to_the_next_attempt() -> None:
    verdict = failure_of(tally(20, ok=18, deferred={7: "HTTP 503", 12: "HTTP 500"}))
    assert (verdict.code, verdict.stage, verdict.cause) == (ExitCode.TRANSIENT, "verify", Cause.PAGES_LEFT)
    assert verdict.error == "2 of 20 pages left (2 deferred, the first because: HTTP 503): pages 0007, 0012"


def test_on_the_last_attempt_a_deferred_page_becomes_failed() -> None:
    decided = after_verify(tally(20, ok=18, deferred={7: "HTTP 503", 12: "HTTP 500"}, last_attempt=True))
    assert decided == Publish({7: "HTTP 503" + LAST_ATTEMPT_SUFFIX, 12: "HTTP 500" + LAST_ATTEMPT_SUFFIX})
    assert LAST_ATTEMPT_SUFFIX == " (still failing on the index's last attempt)"


@pytest.mark.parametrize(
    ("total", "deferred", "outage"),
    [(10, 4, False), (8, 5, True), (50, 5, False), (49, 5, True), (100, 10, False), (100, 11, True)],
)
def test_more_than_a_tenth_of_the_pages_and_at_least_five_is_an_outage(total: int, deferred: int, outage: bool) -> None:
    counted = tally(total, ok=total - deferred, deferred=pages(deferred, "HTTP 503"), last_attempt=True)
    assert isinstance(after_verify(counted), Verdict) is outage


@pytest.mark.parametrize(("down", "cause"), [("origin_down", Cause.ORIGIN_DOWN), ("store_down", Cause.STORE_DOWN)])
def test_an_outage_never_fails_pages_even_on_the_last_attempt(down: str, cause: Cause) -> None:
    verdict = failure_of(tally(300, ok=299, deferred={5: "late"}, last_attempt=True, **{down: True}))
    assert (verdict.code, verdict.stage, verdict.cause) == (ExitCode.TRANSIENT, "stream", cause)


def test_a_page_that_the_store_lost_is_never_published_around() -> None:
    verdict = failure_of(tally(3, ok=3, missing=[2], last_attempt=True))
    assert (verdict.code, verdict.stage) == (ExitCode.TRANSIENT, "verify")
    assert verdict.error.endswith("1 uploaded but not found in the store): pages 0002")


def test_a_page_without_an_outcome_is_never_published_around() -> None:
    verdict = failure_of(tally(3, ok=2, last_attempt=True))
    assert "1 without an outcome" in verdict.error


def test_counts_and_causes_come_before_any_page_name() -> None:
    error = failure_of(tally(5000, ok=2000, deferred=pages(2000, "HTTP 503"), missing=range(2001, 3001))).error
    assert error.index("1000 uploaded") < error.index("0001")
    assert error.index("HTTP 503") < error.index("0001")


def test_a_run_in_which_every_page_failed_is_tried_again() -> None:
    verdict = failure_of(tally(3, failed=pages(3, "CUDA error")))
    assert (verdict.code, verdict.cause) == (ExitCode.TRANSIENT, Cause.ALL_FAILED)
    assert verdict.error.startswith("all 3 processed pages failed, the first because: CUDA error")


@pytest.mark.parametrize(
    ("troubles", "cause"),
    [
        ((Trouble.IMAGE,) * 3, Cause.NO_IMAGES),
        ((Trouble.STORE,) * 3, Cause.STORE_DOWN),
        ((Trouble.PERSON,) * 3, Cause.NO_PAGES),
        ((Trouble.IMAGE, Trouble.STORE, Trouble.STORE), Cause.NO_PAGES),
        ((Trouble.IMAGE, Trouble.STORE, Trouble.MODEL), Cause.ALL_FAILED),
        ((Trouble.IMAGE, Trouble.TEXT_LOST, Trouble.TEXT_LOST), Cause.ALL_FAILED),
    ],
)
def test_where_the_pages_met_their_end_decides_what_is_blamed(troubles: tuple[Trouble, ...], cause: Cause) -> None:
    verdict = failure_of(tally(3, failed=pages(3, "x"), troubles=dict(enumerate(troubles, 1))))
    assert (verdict.code, verdict.cause) == (ExitCode.TRANSIENT, cause)


def test_pages_given_up_on_the_last_attempt_count_as_failed_too() -> None:
    verdict = failure_of(tally(3, failed=pages(1, "HTTP 404"), deferred=pages(2, "late", 2), last_attempt=True))
    assert verdict.cause is Cause.ALL_FAILED


def test_every_processed_page_failed_but_some_were_resumed_is_published() -> None:
    assert after_verify(tally(3, skipped=1, failed=pages(2, "CUDA error"))) == Publish({})


def test_when_every_page_lost_its_text_the_pipeline_is_to_blame_and_the_cause_is_said_once() -> None:
    verdict = failure_of(tally(3, failed=pages(3, LOST), troubles=lost(1, 2, 3)))
    assert (verdict.code, verdict.stage, verdict.cause) == (ExitCode.PERMANENT, "verify", Cause.TEXT_LOST)
    assert verdict.error.count("recognized text not exported") == 1


def test_one_page_that_failed_otherwise_leaves_it_transient() -> None:
    assert failure_of(tally(3, failed={1: LOST, 2: LOST, 3: "hung"}, troubles=lost(1, 2))).code is ExitCode.TRANSIENT


def test_a_canvas_without_an_image_does_not_hide_a_lost_text() -> None:
    verdict = failure_of(tally(3, failed={1: NO_IMAGE, 2: LOST, 3: LOST}, troubles=lost(2, 3)))
    assert verdict.code is ExitCode.PERMANENT
    assert failure_of(tally(2, failed=pages(2, NO_IMAGE))).code is ExitCode.TRANSIENT


@given(
    outcomes=st.lists(st.sampled_from(["ok", "skipped", "failed", "deferred", "none"]), min_size=1, max_size=60),
    last=st.booleans(),
    missing=st.booleans(),
)
def test_nothing_is_published_while_a_page_is_unaccounted_for(outcomes: list[str], last: bool, missing: bool) -> None:
    numbered = list(enumerate(outcomes, 1))
    decided = after_verify(
        Tally(
            total=len(outcomes),
            ok=outcomes.count("ok"),
            skipped=outcomes.count("skipped"),
            failed={n: "r" for n, o in numbered if o == "failed"},
            deferred={n: "r" for n, o in numbered if o == "deferred"},
            missing=[1] if missing else [],
            last_attempt=last,
        )
    )
    if isinstance(decided, Publish):
        assert "none" not in outcomes
        assert not missing
        assert {"ok", "skipped"} & set(outcomes)
        assert set(decided.failed) == {n for n, o in numbered if o == "deferred"}
        assert last or not decided.failed
    else:
        assert decided.code is ExitCode.TRANSIENT


@pytest.mark.parametrize(
    ("error", "code", "stage"),
    [
        (Permanent("load", "no such step"), 13, "load"),
        (ConfigError(["A is not set"]), 13, "config"),
        (Transient("setup", "HTTP 503"), 1, "setup"),
        (Stopped("stream"), 143, "stream"),
        (OSError(28, "No space left on device"), 1, "resume"),
        (MemoryError(), 1, "resume"),
        (KeyError("x"), 1, "resume"),
    ],
)
def test_an_exception_has_its_exit_code_and_stage(error: Exception, code: int, stage: str) -> None:
    verdict = verdict_of(error, "resume")
    assert (verdict.code, verdict.stage, verdict.permanent) == (code, stage, code == 13)
    assert verdict.error


def test_a_stop_says_sigterm() -> None:
    assert verdict_of(Stopped("stream"), "x").error == "SIGTERM"


@pytest.mark.parametrize(
    ("number", "cause"),
    [(errno.ENOSPC, Cause.WORKDIR_FULL), (errno.EDQUOT, Cause.WORKDIR_FULL), (errno.EIO, Cause.UNEXPECTED)],
)
def test_a_disk_without_room_is_no_surprise(number: int, cause: Cause) -> None:
    verdict = verdict_of(OSError(number, "no", "outcomes.json"), "verify")
    assert (verdict.code, verdict.stage, verdict.cause) == (ExitCode.TRANSIENT, "verify", cause)
