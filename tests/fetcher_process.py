"""A real fetcher in a real process, driven by hand with the supervisor's messages."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from actors.messages import CODEC, Decode, Fetch, Fetched, ReadSource, SourceRead, Stop
from actors.specs import FetcherSpec
from supervisor import arena
from supervisor.clock import Clock
from supervisor.process import Incarnation, Plan

T = TypeVar("T")
DEADLINE_S = 60.0
KEPT = ("PATH", "HOME", "TMPDIR", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_EC2_METADATA_DISABLED")


def spec_for(folder: Path, **changes: Any) -> FetcherSpec:
    """A fetcher's settings, small ones; its files lie in `folder`."""
    values: dict[str, Any] = {
        "volume": "vol",
        "manifest_url": None,
        "images": (),
        "pages_path": str(folder / "pages.json"),
        "source_path": str(folder / "source.json"),
        "max_image_width": 2500,
        "max_pages": 0,
        "empty_canvas": "refuse",
        "download_concurrency": 6,
        "download_deadline_s": 20.0,
        "lookahead_bytes": 2**26,
        "manifest_max_bytes": 2**24,
        "fetch_max_bytes": 2**24,
        "max_image_pixels": 100_000_000,
        "user_agent": "batchpod/test",
        "allow_private": True,
        "arena_bytes": 2**23,
        "arena_reserved": False,
        "decode_threads": 2,
        "cache_bucket": None,
        "results_bucket": "results",
        "s3_endpoint": None,
        "s3_verify_tls": True,
    }
    return FetcherSpec(**(values | changes))


class FetcherProcess:
    """Messages to and from one fetcher; all that came is kept in `heard`, all that it logged in `log`."""

    def __init__(self, spec: FetcherSpec, environment: dict[str, str]) -> None:
        self._arena_fd = arena.create(spec.arena_bytes)
        self.pixels = arena.view(self._arena_fd, spec.arena_bytes, writable=False)
        plan = Plan(
            name="fetcher",
            entry="actors.fetcher.actor:main",
            codec=CODEC,
            codec_name="actors.messages:CODEC",
            spec=spec,
            environment={name: os.environ[name] for name in KEPT if name in os.environ} | environment,
            descriptors={"arena": self._arena_fd},
        )
        self.incarnation = Incarnation(plan, 1, Clock())
        self.heard: list[Any] = []
        self.log = ""

    @property
    def pid(self) -> int:
        return self.incarnation.pid

    def say(self, message: Any) -> None:
        self.incarnation.outgoing.put(message)

    def poll(self) -> None:
        incoming = self.incarnation.incoming
        select.select([incoming], [], [], 0.02)
        self.heard += incoming.take()
        self.incarnation.outgoing.flush()
        self.log += self.incarnation.output.read()[0].decode()

    def wait(self, found: Callable[[], T | None]) -> T:
        """What `found` gives, once it gives something."""
        end = time.monotonic() + DEADLINE_S
        while (value := found()) is None:
            if time.monotonic() > end or self.incarnation.incoming.ended:
                self.poll()
                raise AssertionError(f"it did not come; heard {self.heard[-20:]}\n{self.log}")
            self.poll()
        return value

    def wait_for(self, *kinds: type, page: int | None = None) -> Any:
        """The first message of these kinds (about `page`), heard already or later."""
        return self.wait(
            lambda: next(
                (m for m in self.heard if isinstance(m, kinds) and page in (None, getattr(m, "page", None))), None
            )
        )

    def all_of(self, *kinds: type) -> list[Any]:
        """What was heard of these kinds so far."""
        return [m for m in self.heard if isinstance(m, kinds)]

    def wait_count(self, count: int, *kinds: type) -> list[Any]:
        """The messages of these kinds, once there are `count` of them."""
        return self.wait(lambda: those if len(those := self.all_of(*kinds)) >= count else None)

    def read_source(self, *, reuse: bool = False) -> int:
        """Have the source read; the number of its pages."""
        self.say(ReadSource(reuse))
        return int(self.wait_for(SourceRead).count)

    def fetch(self, *pages: int) -> None:
        self.say(Fetch(pages))

    def decode(self, page: int, offset: int = 0) -> Fetched:
        """Order `page` decoded at `offset` once it is fetched; what was said of it then."""
        fetched: Fetched = self.wait_for(Fetched, page=page)
        self.say(Decode(page, offset, fetched.width * fetched.height * 3))
        return fetched

    def end(self, within_s: float = 5.0) -> int | None:
        """Ask it to stop; its exit status."""
        self.say(Stop(within_s))
        end = time.monotonic() + DEADLINE_S
        while not self.incarnation.has_died() and time.monotonic() < end:
            self.poll()
        self.poll()
        return self.incarnation.reap().code

    def close(self) -> None:
        self.incarnation.reap()
        self.incarnation.close()
        self.pixels.release()
        os.close(self._arena_fd)


@contextlib.contextmanager
def running_fetcher(spec: FetcherSpec, **environment: str) -> Iterator[FetcherProcess]:
    """A fetcher while the block runs; killed at its end if it is still there."""
    process = FetcherProcess(spec, environment)
    try:
        yield process
    finally:
        process.close()
