"""The last line of a run, which machines match on and people read."""

from __future__ import annotations

import re
from itertools import product

import pytest

from batchpod import advice
from batchpod.errors import Cause
from batchpod.verdict import ExitCode, Verdict

STAGES = ("config", "setup", "resume", "load", "stream", "verify", "publish", "warmup")


def failed(stage: str, error: str, permanent: bool = False, cause: Cause = Cause.UNKNOWN) -> Verdict:
    return Verdict(ExitCode.PERMANENT if permanent else ExitCode.TRANSIENT, stage, error, cause)


def test_a_success_says_how_many_how_long_and_where() -> None:
    line = advice.complete("R0001203", 638, 226, 412.4, "https://h/p/v/iiif.json")
    assert line == "[R0001203] COMPLETE 638 pages (226 processed) in 412s, viewer: https://h/p/v/iiif.json"


@pytest.mark.parametrize(
    ("permanent", "last", "start"),
    [
        (True, False, "permanent failure in {stage}: "),
        (True, True, "permanent failure in {stage}: "),
        (False, False, "transient failure in {stage}: "),
        (False, True, "transient failure in {stage} on the last attempt: "),
    ],
)
def test_every_failure_is_one_line_of_the_agreed_form_with_a_sentence(permanent: bool, last: bool, start: str) -> None:
    for stage, cause in product(STAGES, Cause):
        line = advice.failure(failed(stage, "it broke", permanent, cause), last)
        head = start.format(stage=stage) + "it broke — "
        assert line.startswith(head)
        sentence = line.removeprefix(head)
        assert re.fullmatch(r"[a-z].{40,}\.", sentence), sentence
        assert ("the next attempt" in sentence) is (not permanent and not last)


def test_what_the_next_attempt_does_is_said_together_with_what_a_person_can_do() -> None:
    line = advice.failure(failed("publish", "PUT x: no answer", False, Cause.STORE_DOWN))
    assert "see that the store is up" in line
    assert line.endswith("; the next attempt keeps the pages that are stored and does the rest.")


def test_a_stop_is_a_transient_failure_called_sigterm() -> None:
    line = advice.failure(Verdict(ExitCode.SIGTERM, "stream", "SIGTERM", Cause.STOPPED))
    assert line.startswith("transient failure in stream: SIGTERM — the pod was told to stop")


def test_the_line_stays_one_line_holds_no_credentials_and_is_clipped() -> None:
    line = advice.failure(failed("setup", "a\nb\r\n http://u:p@h/x?token=hush " + "x" * 9000))
    assert "\n" not in line
    assert "hush" not in line
    assert "u:p" not in line
    assert len(line) < 4000


@pytest.mark.parametrize(
    ("stage", "permanent", "error", "says"),
    [
        ("setup", True, "HTTP 404 (Not Found) for http://h/m", "no manifest at this address"),
        ("setup", True, "HTTP 403 (Forbidden) for http://h/m", "ask for access"),
        (
            "setup",
            True,
            "this is a Collection with 3 manifests, not a Manifest: give …",
            "each of its manifests",
        ),
        ("setup", True, "the manifest is not JSON, it looks like an HTML page: …", "open it in a browser"),
        ("setup", True, "the manifest is empty: it has no canvases", "open it in a browser"),
        (
            "setup",
            True,
            "canvas 3 <http://h/c> has no image; with EMPTY_CANVAS=record …",
            "EMPTY_CANVAS=record",
        ),
        ("setup", True, "the manifest is too large (MANIFEST_MAX_BYTES): …", "raise MANIFEST_MAX_BYTES"),
        ("setup", True, "ftp://h/m is not an http or https URL", "correct the manifest's URL"),
        ("setup", False, "HTTP 503 (Service Unavailable) for http://h/m", "server has a problem of its own"),
        ("setup", False, "HTTP 429 (Too Many Requests) for http://h/m", "fewer requests"),
        ("load", True, "the pipeline does not load: GatedRepoError: 403", "give the warm-up a token"),
        (
            "load",
            True,
            "step 3 (Export): ALTO and PAGE are written and stored without it",
            "correct the pipeline",
        ),
        (
            "load",
            True,
            "`compile` asks for compilation, and the image has no compiler",
            "take that setting out",
        ),
        ("load", False, "the pipeline does not load: LocalEntryNotFoundError: …", "warm-up"),
        ("load", False, "FileNotFoundError: Could not find any file that matches '*.pt' in the repo a/b", "warm-up"),
        ("load", False, "ConnectError: [Errno -2] Name or service not known", "let this pod out to the Hub"),
        ("load", False, "OSError: [Errno 28] No space left on device: '/data/x'", "has no room left"),
        ("load", False, "RuntimeError: No space left on device (os error 28)", "has no room left"),
        ("load", False, "RuntimeError: CUDA error: no kernel image is available", "the GPU of this node"),
        ("warmup", True, "GatedRepoError: 403", "then run the warm-up again"),
        ("warmup", False, "ConnectError: no route", "the Hub can be reached"),
    ],
)
def test_the_sentence_fits_what_the_error_says(stage: str, permanent: bool, error: str, says: str) -> None:
    assert says in advice.failure(failed(stage, error, permanent), last_attempt=True)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("LIST p/v/page/: AccessDenied (status 403): …", "does not accept this run's credentials"),
        ("PUT p/v/page/0001.xml: RequestTimeTooSkewed (status 403): …", "clock"),
        ("LIST p/: could not connect to the endpoint", "the results store"),
    ],
)
def test_of_a_store_that_refuses_it_is_said_what_it_minds(error: str, says: str) -> None:
    assert says in advice.failure(failed("resume", error, cause=Cause.STORE_DOWN))


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        (Cause.BUCKET, "create the bucket"),
        (Cause.ORIGIN_DOWN, "the image server"),
        (Cause.STORE_DOWN, "the results store"),
        (Cause.WORKDIR_FULL, "no room left"),
        (Cause.MEMORY, "memory"),
        (Cause.NO_IMAGES, "no model has seen any"),
        (Cause.NO_PAGES, "no model is to blame"),
        (Cause.ALL_FAILED, "a broken model or GPU"),
        (Cause.GPU_START, "three tries"),
        (Cause.GPU_BROKEN, "the GPU or a model is broken"),
        (Cause.TEXT_LOST, "segments regions before"),
    ],
)
def test_a_known_cause_has_its_own_sentence(cause: Cause, says: str) -> None:
    assert says in advice.failure(failed("stream", "x", cause=cause), last_attempt=True)
