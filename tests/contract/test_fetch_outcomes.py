"""One page that goes wrong, in each way, over real HTTP: the outcome that batchpod/README.md, section 5, gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image as Pixels

from actors.fetcher import download
from actors.fetcher.budget import Budget
from actors.fetcher.download import Downloads, Image, PageLost
from actors.fetcher.http import Client
from actors.fetcher.judging import Judge
from actors.fetcher.manifest import read_manifest
from actors.fetcher.pacing import Pacing
from actors.fetcher.source import Page
from tools import origin as tell
from tools.origin import Fault, Origin, running_origin

Outcome = Image | PageLost
MOST_BYTES = 2**17


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    images.mkdir()
    for number in range(1, 4):
        Pixels.effect_noise((300, 200), 40).convert("RGB").save(images / f"{number:04d}.jpg")
    return images


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits between attempts, shortened."""
    monkeypatch.setattr(download, "BACKOFF_S", 0.01)


def fetch(
    origin: Origin, *, max_width: int = 150, deadline_s: float = 20.0, most_bytes: int = MOST_BYTES,
    max_pixels: int = 10**6, arena_bytes: int = 2**20, at_once: int = 6, allow_private: bool = True,
    change: Callable[[Page], Page] = lambda page: page, two: bool = False,
) -> list[Outcome]:  # fmt: skip
    """Every page of the origin's manifest, as a fetcher would get it."""

    async def go() -> list[Outcome]:
        client = Client(user_agent="batchpod/test", deadline_s=deadline_s, allow_private=allow_private)
        judge = Judge(max_pixels=max_pixels, arena_bytes=arena_bytes)
        async with client:
            url = origin.manifest2_url if two else origin.manifest_url
            body = bytes((await client.get(url, most_bytes=2**20)).data)
            source = read_manifest(body, max_width=max_width, empty_canvas="refuse", max_pages=0)
            downloads = Downloads(
                client, Pacing(at_once), Budget(2**26), judge, most_bytes=most_bytes, max_width=max_width
            )
            try:
                return await asyncio.gather(
                    *(one(downloads, number, change(page)) for number, page in enumerate(source.pages, 1))
                )
            finally:
                judge.close()

    async def one(downloads: Downloads, number: int, page: Page) -> Outcome:
        try:
            return await downloads.image(number, page, lambda: None)
        except PageLost as lost:
            return lost

    return asyncio.run(go())


def lost(outcomes: Sequence[Outcome], page: int) -> PageLost:
    """What became of `page`, all others having come."""
    assert all(isinstance(o, Image) for n, o in enumerate(outcomes, 1) if n != page), outcomes
    outcome = outcomes[page - 1]
    assert isinstance(outcome, PageLost)
    return outcome


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (tell.status(500), "HTTP 500"),
        (tell.status(502), "HTTP 502"),
        (tell.status(503), "HTTP 503"),
        (tell.status(504), "HTTP 504"),
        (tell.status(509), "HTTP 509"),
        (tell.status(408), "HTTP 408"),
        (tell.status(425), "HTTP 425"),
        (tell.status(429, retry_after=0), "HTTP 429"),
        (tell.html(), "an HTML page instead of an image"),
        (tell.short(), "a short body"),
    ],
)
def test_a_passing_trouble_is_tried_three_times_and_then_deferred(folder: Path, fault: Fault, reason: str) -> None:
    with running_origin(folder, {2: fault}) as origin:
        page = lost(fetch(origin), 2)
        assert page.outcome == "deferred"
        assert reason in str(page)
        assert "after 3 attempts" in str(page)
        assert origin.asked(2) == 3


@pytest.mark.parametrize("fault", [tell.reset(), tell.stall(), tell.silent(), tell.headers(), tell.drip(0.5, 8)])
def test_a_connection_that_breaks_or_never_ends_is_deferred_after_the_attempts(folder: Path, fault: Fault) -> None:
    with running_origin(folder, {2: fault}) as origin:
        page = lost(fetch(origin, deadline_s=0.5), 2)
        assert page.outcome == "deferred"
        assert origin.asked(2) >= 3


@pytest.mark.parametrize("status", [401, 402, 405, 406, 410, 414, 416, 418, 451])
def test_a_plain_no_fails_the_page_with_exactly_one_request(folder: Path, status: int) -> None:
    with running_origin(folder, {2: tell.status(status)}) as origin:
        page = lost(fetch(origin), 2)
        assert page.outcome == "failed"
        assert f"HTTP {status}" in str(page)
        assert origin.asked(2) == 1


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("fault", [tell.status(503), tell.status(429, retry_after=0), tell.html(), tell.short()])
def test_a_trouble_that_passes_costs_attempts_only(folder: Path, fault: Fault, times: int) -> None:
    with running_origin(folder, {2: replace(fault, times=times)}) as origin:
        assert all(isinstance(o, Image) for o in fetch(origin))
        assert origin.asked(2) == times + 1


@pytest.mark.parametrize(
    ("fault", "reason", "requests"),
    [
        (tell.loop(), "a redirect loop", 1),
        (tell.chain(6), "more than 5 redirects", 6),
        (tell.redirect("http://169.254.169.254/latest/meta-data"), "a link-local address", 1),
        (tell.redirect("http://[fd00:ec2::254]/"), "a metadata address", 1),
        (tell.redirect("http://100.100.100.200/"), "a metadata address", 1),
        (tell.redirect("ftp://example.org/1.jpg"), "is not an http or https URL", 1),
        (tell.redirect("file:///etc/passwd"), "is not an http or https URL", 1),
        (tell.encoded("br"), "content encoding", 1),
        (tell.encoded("deflate"), "content encoding", 1),
        (tell.endless(), "more than the 131072 bytes", 1),
        (tell.bomb(2**22), "more than the 131072 bytes", 1),
    ],
)
def test_what_asking_again_cannot_mend_fails_the_page_at_once(
    folder: Path, fault: Fault, reason: str, requests: int
) -> None:
    with running_origin(folder, {2: fault}) as origin:
        page = lost(fetch(origin), 2)
        assert page.outcome == "failed"
        assert reason in str(page)
        assert origin.asked(2) == requests


def test_five_redirects_and_gzip_and_a_wrong_content_type_are_taken(folder: Path) -> None:
    faults = {1: tell.chain(5, 308), 2: tell.encoded("gzip"), 3: tell.typed("text/html")}
    with running_origin(folder, faults) as origin:
        outcomes = fetch(origin)
        assert all(isinstance(o, Image) for o in outcomes)
        assert origin.asked(1) == 6


def test_a_slow_body_is_waited_for(folder: Path) -> None:
    with running_origin(folder, {2: tell.drip(0.01, 1024), 3: tell.delay(0.3)}) as origin:
        assert all(isinstance(o, Image) for o in fetch(origin))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_pixels": 100 * 100}, "150 x 100 pixels are more than the 10000 of MAX_IMAGE_PIXELS"),
        ({"arena_bytes": 40_000}, "more than all 40000 of PIXEL_ARENA_BYTES"),
        ({"most_bytes": 500}, "more than the 500 allowed"),
    ],
)
def test_a_page_over_a_limit_fails_without_another_request(folder: Path, limits: dict[str, int], reason: str) -> None:
    for other in ("0002.jpg", "0003.jpg"):
        (folder / other).unlink()
    with running_origin(folder) as origin:
        page = lost(fetch(origin, **limits), 1)  # type: ignore[arg-type]
        assert page.outcome == "failed"
        assert reason in str(page)
        assert origin.asked(1) == 1


@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        (b"", "failed", "an empty body"),
        (b"\x00" * 100, "failed", "not an image"),
        (b"%PDF-1.7 ...", "failed", "not an image"),
        (b"Service Unavailable", "failed", "not an image"),
        (b"\n <!DOCTYPE HTML><p>Wartung", "deferred", "an HTML page"),
        (b"<?xml version='1.0'?><html xmlns='x'>", "deferred", "an HTML page"),
        (b"\x00\x00\x00\x0cjP  \r\n\x87\njunk", "failed", "JP2"),
        (b"\xff\xd8\xff\xe0 cut", "failed", "JPEG"),
    ],
)
def test_the_bytes_decide_what_is_an_image(folder: Path, body: bytes, outcome: str, reason: str) -> None:
    (folder / "0002.bin").write_bytes(body)
    (folder / "0002.jpg").unlink()
    with running_origin(folder, service=False) as origin:
        page = lost(fetch(origin), 2)
        assert page.outcome == outcome
        assert reason in str(page)


def test_no_reason_shows_a_query_or_userinfo(folder: Path) -> None:
    def secret(page: Page) -> Page:
        return Page(
            **{f: getattr(page, f) for f in Page.__slots__ if f not in ("url", "service")},
            url=page.url.replace("://", "://user:secret@") + "?token=secret", service=None,
        )  # fmt: skip

    with running_origin(folder, {1: tell.status(500), 2: tell.status(410), 3: tell.loop()}) as origin:
        for outcome in fetch(origin, change=secret):
            assert isinstance(outcome, PageLost)
            assert "secret" not in str(outcome)
            assert origin.host_url in str(outcome)


def test_a_private_address_is_refused_where_the_run_says_so(folder: Path) -> None:
    with running_origin(folder) as origin:
        client = Client(user_agent="x", deadline_s=5, allow_private=False)

        async def go() -> str:
            async with client:
                with pytest.raises(Exception, match="FETCH_ALLOW_PRIVATE") as raised:
                    await client.get(origin.image_urls[0], most_bytes=2**20)
                return type(raised.value).__name__

        assert asyncio.run(go()) == "Denied"
        assert origin.asked() == 0


def test_each_size_is_tried_once_and_costs_no_attempt(folder: Path) -> None:
    with running_origin(
        folder, {2: tell.status(501, on=("sized",)), 3: tell.status(400, on=("sized", "max"))}
    ) as origin:
        assert all(isinstance(o, Image) for o in fetch(origin))
        assert [r.path.split("/")[4] for r in origin.requests if r.page == 2] == ["150,", "max"]
        assert [r.path.split("/")[4] for r in origin.requests if r.page == 3] == ["150,", "max", "full"]


def test_a_level_0_service_is_asked_for_the_smallest_listed_size_that_is_wide_enough(folder: Path) -> None:
    with running_origin(folder, level=0) as origin:
        outcomes = fetch(origin, max_width=100)
        assert [(o.header.width, o.header.height) for o in outcomes if isinstance(o, Image)] == [(150, 100)] * 3
        paths = [r.path for r in origin.requests if r.page == 1]
        assert paths == ["/iiif/0001.jpg/info.json", "/iiif/0001.jpg/full/150,100/0/default.jpg"]


def test_where_every_form_is_404_info_json_is_read(folder: Path) -> None:
    fault = tell.status(404, times=3, on=("sized", "max", "full"))
    with running_origin(folder, {2: fault}) as origin:
        assert all(isinstance(o, Image) for o in fetch(origin))
        asked = [r.path.split("/", 3)[3] for r in origin.requests if r.page == 2]
        assert asked == [
            "full/150,/0/default.jpg", "full/max/0/default.jpg", "full/full/0/default.jpg", "info.json",
            "full/150,100/0/default.jpg",
        ]  # fmt: skip


def test_a_page_that_is_nowhere_fails_by_the_last_answer(folder: Path) -> None:
    nowhere = tell.status(404, on=("sized", "max", "full", "info"))
    with running_origin(folder, {2: nowhere}) as origin:
        page = lost(fetch(origin), 2)
        assert page.outcome == "failed"
        assert "HTTP 404" in str(page)
        assert "/full/full/" in str(page)
        assert origin.asked(2) == 4


def test_a_server_that_is_asked_too_fast_gives_every_page_without_a_storm(folder: Path) -> None:
    """First five requests in a second are answered, the rest get 429 with Retry-After: 2."""
    with running_origin(folder, {"images": tell.limit(5, retry_after=2)}, pages=20) as origin:
        outcomes = fetch(origin, at_once=12)
        assert [type(o) for o in outcomes] == [Image] * 20
        assert origin.asked() < 60


def test_a_presentation_2_manifest_gives_the_same_images(folder: Path) -> None:
    with running_origin(folder) as origin:
        sizes = [o.header for o in fetch(origin, two=True) if isinstance(o, Image)]
        assert sizes == [o.header for o in fetch(origin) if isinstance(o, Image)]
        assert len(sizes) == 3
