"""How a run ends: its exit code, and whether a volume may be published (batchpod/README.md, sections 3, verify, and
4).

Pure. Owns the exit codes and the rules; not the sentences for people (advice.py), nor the writing
(termination.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from actors.fetcher.source import NO_IMAGE
from actors.messages import page_name
from actors.room import no_room
from batchpod.errors import Cause, Permanent, RunError, Stopped

LAST_ATTEMPT_SUFFIX = " (still failing on the index's last attempt)"
OUTAGE_LEAST_PAGES = 5


class ExitCode(IntEnum):
    OK = 0
    TRANSIENT = 1
    USAGE = 2
    PERMANENT = 13
    SIGTERM = 143


class Trouble(StrEnum):
    """Where a page that has no result met its end."""

    IMAGE = "image"
    """No model saw it."""
    MODEL = "model"
    TEXT_LOST = "text lost"
    """Its export held none of its text."""
    STORE = "store"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the run ends. `error` is one plain sentence, empty for OK; `cause` picks the advice."""

    code: ExitCode
    stage: str
    error: str = ""
    cause: Cause = Cause.UNKNOWN

    @property
    def permanent(self) -> bool:
        return self.code is ExitCode.PERMANENT


@dataclass(frozen=True, slots=True)
class Publish:
    """The volume may be published. `failed` holds the deferred pages that become failed, with their new
    reasons.
    """

    failed: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the pages of a run whose stream has ended.

    `failed` and `deferred` map a page to its reason, `troubles` to where it met it (a model, where it is not there).
    `missing` are the pages whose upload succeeded and which the store does not list. `store_down`: the run ended on
    consecutive upload failures.
    """

    total: int
    ok: int
    skipped: int
    failed: Mapping[int, str]
    deferred: Mapping[int, str]
    missing: Collection[int] = ()
    troubles: Mapping[int, Trouble] = field(default_factory=dict)
    last_attempt: bool = False
    origin_down: bool = False
    store_down: bool = False


def verdict_of(error: BaseException, stage: str) -> Verdict:
    """The verdict of an exception that ended the run in `stage` (unless it knows better); what is not classified is
    transient."""
    match error:
        case Stopped():
            return Verdict(ExitCode.SIGTERM, error.stage or stage, error.error, error.cause)
        case Permanent():
            return Verdict(ExitCode.PERMANENT, error.stage or stage, error.error, error.cause)
        case RunError():
            return Verdict(ExitCode.TRANSIENT, error.stage or stage, error.error, error.cause)
        case _:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            cause = Cause.WORKDIR_FULL if no_room(error) else Cause.UNEXPECTED
            return Verdict(ExitCode.TRANSIENT, stage, text, cause)


def after_verify(tally: Tally) -> Publish | Verdict:
    """Whether the volume is published, or why not.

    An outage is no page's fault, so it never turns deferred pages into failed ones; neither does a page that
    the store has lost, since nothing is known against it.
    """
    down = _outage(tally)
    if down is not None:
        return down
    unaccounted = tally.total - tally.ok - tally.skipped - len(tally.failed) - len(tally.deferred)
    retried = tally.deferred and not tally.last_attempt
    if tally.missing or unaccounted or retried or _outage_sized(tally):
        return Verdict(ExitCode.TRANSIENT, "verify", _left_pages(tally, unaccounted), Cause.PAGES_LEFT)
    given_up = {page: reason + LAST_ATTEMPT_SUFFIX for page, reason in tally.deferred.items()}
    failed = {**tally.failed, **given_up}
    if tally.ok == 0 and tally.skipped == 0 and failed:
        return _all_failed(failed, tally)
    return Publish(given_up)


def _outage(tally: Tally) -> Verdict | None:
    for down, who, cause in (
        (tally.origin_down, "the image server is down", Cause.ORIGIN_DOWN),
        (tally.store_down, "the store does not take uploads", Cause.STORE_DOWN),
    ):
        if down:
            return Verdict(ExitCode.TRANSIENT, "stream", f"{who}: {_left_pages(tally)}", cause)
    return None


def _outage_sized(tally: Tally) -> bool:
    count = len(tally.deferred)
    return count >= OUTAGE_LEAST_PAGES and 10 * count > tally.total


def _left_pages(tally: Tally, unaccounted: int = 0) -> str:
    counts = []
    if tally.deferred:
        counts.append(f"{len(tally.deferred)} deferred, the first because: {tally.deferred[min(tally.deferred)]}")
    if tally.missing:
        counts.append(f"{len(tally.missing)} uploaded but not found in the store")
    if unaccounted:
        counts.append(f"{unaccounted} without an outcome")
    left = len(tally.deferred) + len(tally.missing) + unaccounted
    pages = sorted({*tally.deferred, *tally.missing})
    return f"{left} of {tally.total} pages left ({'; '.join(counts)}){_names(pages)}" if counts else "no page left"


def _all_failed(failed: Mapping[int, str], tally: Tally) -> Verdict:
    """A page that was recorded failed for want of an image was never processed: it does not hide a lost
    text.
    """
    pages = sorted(failed)
    processed = [page for page in pages if failed[page] != NO_IMAGE]
    if processed and all(tally.troubles.get(page) is Trouble.TEXT_LOST for page in processed):
        error = f"all {len(processed)} processed pages failed: {failed[processed[0]]}{_names(processed)}"
        return Verdict(ExitCode.PERMANENT, "verify", error, Cause.TEXT_LOST)
    error = f"all {len(pages)} processed pages failed, the first because: {failed[pages[0]]}{_names(pages)}"
    return Verdict(ExitCode.TRANSIENT, "verify", error, _cause({tally.troubles.get(page, Trouble.MODEL) for page in pages}))


def _cause(troubles: AbstractSet[Trouble]) -> Cause:
    if troubles & {Trouble.MODEL, Trouble.TEXT_LOST}:
        return Cause.ALL_FAILED
    if troubles == {Trouble.IMAGE}:
        return Cause.NO_IMAGES
    return Cause.STORE_DOWN if troubles == {Trouble.STORE} else Cause.NO_PAGES


def _names(pages: list[int]) -> str:
    """Page names come last in every error, since clipping takes the end."""
    return ": pages " + ", ".join(page_name(page) for page in pages) if pages else ""
