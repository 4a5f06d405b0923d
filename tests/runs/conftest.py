"""Whole runs: an origin with small pages, a bucket, and the volume between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.volume import Volume, page_images
from tools.localstack import LocalStack
from tools.origin import running_origin


@pytest.fixture
def volume(tmp_path: Path, localstack: LocalStack, s3: Any, bucket: str) -> Iterator[Callable[..., Volume]]:
    """Makes volumes: `volume(pages, size=…, faults=…, endpoint=…, **origin)`."""
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
            return made

        yield make
