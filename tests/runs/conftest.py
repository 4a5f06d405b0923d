"""Whole runs: an origin with small pages, a bucket, and the volume between them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.volume import Volume, page_images
from tools.localstack import LocalStack
from tools.origin import running_origin

VOLUMES = pytest.StashKey[list[Volume]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows the log of every run that it made."""
    report = yield
    if report.failed:
        for number, run in enumerate((run for made in item.stash.get(VOLUMES, []) for run in made.runs), 1):
            report.sections.append((f"log of run {number}", run.log))
    return report


@pytest.fixture
def volume(
    tmp_path: Path, localstack: LocalStack, s3: Any, bucket: str, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Volume]]:
    """Makes volumes: `volume(pages, size=…, faults=…, endpoint=…, **origin)`."""
    volumes = request.node.stash[VOLUMES] = []
    with ExitStack() as stack:

        def make(
            pages: int = 5,
            *,
            size: tuple[int, int] = (120, 160),
            faults: Any = None,
            endpoint: str | None = None,
            **origin: Any,
        ) -> Volume:
            folder = page_images(tmp_path / "images", pages, size)
            served = stack.enter_context(running_origin(folder, faults=faults, **origin))
            made = Volume(tmp_path, s3, bucket, endpoint or localstack.url, served)
            stack.callback(made.close)
            volumes.append(made)
            return made

        yield make
