"""The URLs asked of an image service, and the identity of an image whatever its size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fetcher.services import ImageApi, ImageService
from actors.fetcher.sizes import cache_identity, fallbacks, first_url, info_url, largest_url, sized_from_info
from actors.fetcher.source import Page

BASE = "http://h/iipsrv.fcgi?iiif=/2.tif"


def page(api: ImageApi = 2, width: int | None = None, service: str | None = BASE) -> Page:
    url = first_url(ImageService(service, api, False), width, 2500) if service else "http://h/1.jpg"
    return Page(url, service, api, False, "", {}, width, None, {}, "")


@pytest.mark.parametrize(
    ("served", "urls"),
    [
        (page(), ["/full/2500,/0/default.jpg", "/full/max/0/default.jpg", "/full/full/0/default.jpg"]),
        (page(width=900), ["/full/max/0/default.jpg", "/full/full/0/default.jpg"]),
        (page(api=1), ["/full/2500,/0/native.jpg", "/full/full/0/native.jpg"]),
        (page(api=1, width=900), ["/full/full/0/native.jpg"]),
        (page(api=3), ["/full/2500,/0/default.jpg", "/full/max/0/default.jpg", "/full/full/0/default.jpg"]),
    ],
)
def test_a_refused_size_is_followed_by_max_and_full_each_once(served: Page, urls: list[str]) -> None:
    assert [served.url, *fallbacks(served)] == [BASE + url for url in urls]


def test_an_image_without_a_service_has_one_url() -> None:
    alone = page(service=None)
    assert (fallbacks(alone), info_url(alone), sized_from_info(alone, b'{"sizes": []}', 9)) == (
        [],
        None,
        None,
    )


SIZES = [{"width": 100, "height": 74}, {"width": 3000, "height": 2216}, {"width": 400, "height": 295}]


@pytest.mark.parametrize(
    ("max_width", "size"),
    [(90, "100,74"), (100, "100,74"), (101, "400,295"), (2500, "3000,2216"), (9000, "3000,2216")],
)
def test_the_smallest_listed_size_that_is_wide_enough_is_taken_else_the_largest(
    max_width: int, size: str
) -> None:
    assert sized_from_info(page(), json.dumps({"sizes": SIZES}).encode(), max_width) == (
        f"{BASE}/full/{size}/0/default.jpg"
    )


@pytest.mark.parametrize(
    "sizes",
    [None, [], {}, "x", [3, None, {"width": "wide", "height": 3}, {"width": 0, "height": 0}, {"width": 9}]],
)
def test_an_info_without_usable_sizes_gives_none(sizes: Any) -> None:
    assert sized_from_info(page(), json.dumps({"sizes": sizes}).encode(), 2500) is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"7", b"\xff\xfe\x00", b"[" * 5000])
def test_a_body_that_is_no_info_gives_none(body: bytes) -> None:
    assert sized_from_info(page(), body, 2500) is None


def test_the_service_itself_says_what_its_quality_is_called() -> None:
    info = {"@context": "http://iiif.io/api/image/2/context.json", "sizes": SIZES[:1]}
    body = b"\xef\xbb\xbf" + json.dumps(info).encode()
    assert sized_from_info(page(api=1), body, 2500) == f"{BASE}/full/100,74/0/default.jpg"
    body = json.dumps({"sizes": SIZES[:1]}).encode()
    assert sized_from_info(page(api=1), body, 2500) == f"{BASE}/full/100,74/0/native.jpg"


@pytest.mark.parametrize(
    "size", ["max", "full", "2500,", "^2500,", "!1024,1024", ",800", "100,74", "pct:50", "^max"]
)
def test_an_image_has_one_identity_at_every_size_and_with_any_credentials(size: str) -> None:
    tail = f"/full/{size}/0/default.jpg"
    plain = cache_identity("https://h/iiif/a%2Fb/full/max/0/default.jpg")
    assert cache_identity(f"https://u:p@h/iiif/a%2Fb{tail}?token=secret&X-Amz-Signature=s") == plain
    assert cache_identity(f"http://h/f?Key=k&iiif=/2.tif{tail}") == cache_identity(
        "http://h/f?iiif=/2.tif/full/max/0/default.jpg"
    )


def test_what_is_no_size_stays_in_the_identity() -> None:
    urls = [
        "http://h/full/full/a.jpg", "http://h/full/max/a.jpg", "http://h/2500,/a.jpg", "http://h/a.jpg",
        "http://h/i/full/max/0/default.jpg", "http://h/i/full/max/90/default.jpg", "http://h/i/full/max/0/default.png",
        "http://h/i/0,0,5,5/max/0/default.jpg", "http://h/j/full/max/0/default.jpg", "http://h/a.jpg?w=1",
    ]  # fmt: skip
    assert len({cache_identity(url) for url in urls}) == len(urls)


@given(st.text(), st.sampled_from([1, 2, 3]), st.integers(2, 9000) | st.none())
def test_whatever_the_base_it_is_only_appended_to(base: str, api: ImageApi, width: int | None) -> None:
    service = ImageService(base, api, False)
    for url in (first_url(service, width, 2500), largest_url(service)):
        assert url.startswith(base + "/full/")
    assert len(cache_identity(first_url(service, width, 2500))) == 64
