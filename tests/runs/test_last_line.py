"""The last line of a run's log, which readers match on, whatever the store refuses while the run ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from tests.doubles import s3 as s3_double
from tests.doubles.s3 import Request, Store, Stored
from tests.volume import Volume

Answer = Callable[[Request], tuple[int, str] | None]
Make = Callable[..., Volume]
LOGS, DUMPS = "status/logs/", "status/dumps/"
LAST_LINES = {
    0: r"\[\w+\] COMPLETE 3 pages \(3 processed\) in \S+s, viewer: \S+",
    1: r"transient failure in \w+: .+ — .+",
    13: r"permanent failure in \w+: .+ — .+",
}
UNSTORED = "WARNING uploader.shipping the {} could not be stored, the run goes on: "


@pytest.fixture
def store() -> Iterator[Store]:
    with s3_double.running() as running:
        yield running


def always(status: int, code: str, method: str = "") -> Callable[[Store], Answer]:
    return lambda store: lambda request: (status, code) if request.method == (method or request.method) else None


def fine(store: Store) -> Answer:
    return lambda request: None


def no_dump_from_a_failing_run(store: Store) -> Answer:
    def answer(request: Request) -> tuple[int, str] | None:
        refused = request.method == "DELETE" or request.key.startswith(DUMPS)
        return (403, "AccessDenied") if refused else None

    return answer


def no_log_once_published(store: Store) -> Answer:
    def answer(request: Request) -> tuple[int, str] | None:
        published = any(key.endswith("/manifest.json") for key in list(store.objects))
        return (503, "SlowDown") if published and request.method == "PUT" and request.key.startswith(LOGS) else None

    return answer


def no_log_but_one_once_done(store: Store) -> Answer:
    """The shipment before the last line comes through, the one with it does not."""
    taken: list[Request] = []

    def answer(request: Request) -> tuple[int, str] | None:
        progress = next((stored.body for key, stored in list(store.objects.items()) if "progress" in key), b"")
        if request.method == "PUT" and request.key.startswith(LOGS) and b'"done"' in progress:
            taken.append(request)
        return (503, "SlowDown") if len(taken) > 1 and request is taken[-1] else None

    return answer


def no_look_at_the_log(store: Store) -> Answer:
    return lambda request: (403, "") if request.method == "HEAD" and request.key.startswith(LOGS) else None


def log_taken_over(store: Store, deletes: bool = True) -> Answer:
    """Another run's log lies there as soon as this run, which fails without deletes, looks whose it is."""

    def answer(request: Request) -> tuple[int, str] | None:
        if request.method == "HEAD" and request.key.startswith(LOGS):
            store.objects[request.key] = Stored(b"theirs\n", {"x-amz-meta-run-id": "theirs"}, datetime.now(UTC))
        return (403, "AccessDenied") if request.method == "DELETE" and not deletes else None

    return answer


@dataclass(frozen=True, slots=True)
class Case:
    """`said` come before the last line. `shipped`: the stored log is whole; `theirs`: it is another run's."""

    name: str
    trouble: Callable[[Store], Answer]
    code: int
    said: tuple[str, ...] = ()
    shipped: bool = False
    theirs: bool = False
    environ: dict[str, str] = field(default_factory=dict)


PROGRESS, DUMP, LOG = (UNSTORED.format(what) for what in ("progress.json", "debug dump", "run log"))
OTHERS = "WARNING uploader.shipping the run log is another run's by now (theirs) and is left to it"
CASES = (
    Case("nothing is wrong", fine, 0, shipped=True),
    Case("there is no such bucket", always(404, "NoSuchBucket"), 13, (PROGRESS, DUMP, LOG)),
    Case("the bucket's name cannot be one", always(400, "InvalidBucketName"), 13, (PROGRESS, DUMP, LOG)),
    Case(
        "there are no credentials", fine, 1, (PROGRESS, DUMP, LOG), environ={"AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    ),
    Case("no put is allowed", always(403, "AccessDenied", "PUT"), 1, (PROGRESS, DUMP, LOG)),
    Case("no delete and no dump is allowed", no_dump_from_a_failing_run, 1, (DUMP,), shipped=True),
    Case("the log is refused once all is published", no_log_once_published, 0, (LOG,)),
    Case("the log is refused from its last line on", no_log_but_one_once_done, 0),
    Case("whose the log is cannot be asked", no_look_at_the_log, 0, ("it is taken for this run's",), shipped=True),
    Case("another run has the log", log_taken_over, 0, (OTHERS,), theirs=True),
    Case("another run has a failing run's log", lambda s: log_taken_over(s, False), 1, (OTHERS,), theirs=True),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_last_line_of_the_log_is_the_verdict_when(volume: Make, store: Store, case: Case):
    this = volume(3, endpoint=store.url)
    store.faults.answer = case.trouble(store)
    ended = this.run(**case.environ)
    assert ended.code == case.code, ended.log
    assert re.fullmatch(LAST_LINES[case.code], ended.last_line), ended.log
    assert ended.log.count(ended.last_line) == 1
    for said in case.said:
        assert ended.log.count(said) == 1, ended.log
    stored = store.objects.get(f"{LOGS}test-recipe/{this.ref}.txt")
    if case.shipped:
        assert stored is not None
        assert stored.body.decode() == ended.log
    if case.theirs:
        assert stored is not None
        assert stored.body == b"theirs\n"
    assert this.left_in_workdir() == set()
