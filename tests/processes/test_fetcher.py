"""The fetcher as the supervisor meets it: a process, its messages, its marks, the pixels in the arena."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from actors.fetcher.source import Source
from actors.messages import (
    Decode,
    Decoded,
    DecodeFailed,
    DecodeStarted,
    ErrorLogged,
    Fetched,
    FetchFailed,
    FetchStarted,
    Forget,
    LogLevel,
    ReadSource,
    SourceFailed,
    SourceRead,
)
from tests.fetcher_process import FetcherProcess, running_fetcher, spec_for
from tools import origin as tell
from tools.origin import running_origin

WIDTH, HEIGHT = 60, 40
BYTES = WIDTH * HEIGHT * 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five pages of one colour each, as lossless files."""
    images = tmp_path / "images"
    images.mkdir()
    for number in range(1, 6):
        Image.new("RGB", (WIDTH, HEIGHT), (number * 40, 0, 255 - number * 40)).save(images / f"{number:04d}.png")
    return images


def colour(fetcher: FetcherProcess, offset: int) -> tuple[int, ...]:
    """The one colour of the picture at `offset`."""
    pixels = np.frombuffer(fetcher.pixels, np.uint8, BYTES, offset).reshape(-1, 3)
    assert (pixels == pixels[0]).all()
    return tuple(int(c) for c in pixels[0])


def test_a_volume_is_read_fetched_and_decoded_into_the_arena(folder: Path, tmp_path: Path) -> None:
    with (
        running_origin(folder, service=False) as origin,
        running_fetcher(spec_for(tmp_path, manifest_url=origin.manifest_url)) as fetcher,
    ):
        assert fetcher.read_source() == 5
        fetcher.fetch(1, 2, 3, 4, 5)
        fetcher.wait_count(5, Fetched)
        for page in range(1, 6):
            fetched = fetcher.decode(page, (page - 1) * 8192)
            assert (fetched.width, fetched.height, fetched.cache) == (WIDTH, HEIGHT, "off")
            assert fetched.size_bytes == fetched.origin_bytes == (folder / f"{page:04d}.png").stat().st_size
        fetcher.wait_count(5, Decoded)
        for page in range(1, 6):
            assert colour(fetcher, (page - 1) * 8192) == (page * 40, 0, 255 - page * 40)
            kinds = [type(m) for m in fetcher.heard if getattr(m, "page", None) == page]
            assert kinds == [FetchStarted, Fetched, DecodeStarted, Decoded]
        assert origin.asked() == 5
        assert fetcher.incarnation.marks.tasks() == []
        assert fetcher.end() == 0


def test_an_image_list_becomes_pages_and_a_manifest_without_credentials(folder: Path, tmp_path: Path) -> None:
    with running_origin(folder) as origin:
        urls = tuple(u.replace("://", "://me:secret@") + "?v=1&token=secret" for u in origin.image_urls)
        with running_fetcher(spec_for(tmp_path, images=urls, max_pages=2)) as fetcher:
            assert fetcher.read_source() == 2
            assert fetcher.all_of(SourceRead) == [SourceRead(2, 5)]
            fetcher.fetch(1, 2)
            fetcher.wait_count(2, Fetched)
            built = (tmp_path / "source.json").read_text()
            assert "secret" not in built
            assert len(json.loads(built)["items"]) == 5
            assert Source.from_json((tmp_path / "pages.json").read_bytes()).pages[0].url == urls[0]
            assert {r.path for r in origin.requests} == {f"/files/000{n}.png?v=1&token=secret" for n in (1, 2)}
            assert all(r.headers.get("Authorization") for r in origin.requests)
            assert "secret" not in fetcher.log


def test_a_fetcher_started_anew_reads_its_page_list_back(folder: Path, tmp_path: Path) -> None:
    with running_origin(folder) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url)
        with running_fetcher(spec) as fetcher:
            fetcher.read_source()
        origin.fault("manifest", tell.status(404))
        with running_fetcher(spec) as fetcher:
            assert fetcher.read_source(reuse=True) == 5
            fetcher.fetch(3)
            fetcher.wait_for(Fetched, page=3)


@pytest.mark.parametrize(
    ("fault", "permanent", "text", "requests"),
    [
        *((tell.status(code), True, f"HTTP {code}", 1) for code in (400, 401, 403, 404, 410)),
        *((tell.status(code), False, f"HTTP {code}", 1) for code in (406, 418)),
        *((tell.status(code, retry_after=0), False, f"HTTP {code}", 4) for code in (429, 500)),
        (tell.html(), True, "HTML", 1),
        (tell.loop(), False, "a redirect loop", 1),
        (tell.redirect("http://169.254.169.254/"), True, "a link-local address", 1),
        (tell.endless(), True, "MANIFEST_MAX_BYTES", 1),
        (tell.bomb(2**25), True, "MANIFEST_MAX_BYTES", 1),
    ],
)
def test_a_manifest_that_cannot_be_had_says_whether_it_is_for_good(
    folder: Path, tmp_path: Path, fault: tell.Fault, permanent: bool, text: str, requests: int
) -> None:
    with running_origin(folder, {"manifest": fault}) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url, manifest_max_bytes=2**20)
        with running_fetcher(spec) as fetcher:
            fetcher.say(ReadSource())
            failed: SourceFailed = fetcher.wait_for(SourceFailed)
            assert failed.permanent is permanent
            assert text in failed.error
            assert len(origin.requests) == requests


def test_a_full_workdir_is_said_and_is_not_the_manifest_s_fault(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pages.json.part").symlink_to("/dev/full")
    with running_origin(folder) as origin, running_fetcher(spec_for(tmp_path, manifest_url=origin.manifest_url)) as fetcher:
        fetcher.say(ReadSource())
        failed: SourceFailed = fetcher.wait_for(SourceFailed)
    assert failed.workdir_full
    assert not failed.permanent
    assert "cannot be kept in the workdir" in failed.error


def test_a_manifest_server_that_recovers_or_never_answers(folder: Path, tmp_path: Path) -> None:
    with running_origin(folder, {"manifest": tell.status(503, times=3)}) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url, download_deadline_s=5.0)
        with running_fetcher(spec) as fetcher:
            assert fetcher.read_source() == 5
    with running_origin(folder, {"manifest": tell.headers()}) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url, download_deadline_s=0.5)
        with running_fetcher(spec) as fetcher:
            fetcher.say(ReadSource())
            failed: SourceFailed = fetcher.wait_for(SourceFailed)
            assert not failed.permanent
            assert "DOWNLOAD_DEADLINE_SECONDS" in failed.error


def test_a_canvas_without_an_image_fails_with_its_reason_and_the_others_come(tmp_path: Path, folder: Path) -> None:
    with running_origin(folder) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url)
        with running_fetcher(spec) as fetcher:
            fetcher.read_source()
        pages = json.loads((tmp_path / "pages.json").read_bytes())
        pages["pages"][1] |= {"url": "", "service": None, "error": "canvas has no image", "digest": ""}
        (tmp_path / "pages.json").write_text(json.dumps(pages))
        with running_fetcher(spec) as fetcher:
            fetcher.read_source(reuse=True)
            fetcher.fetch(1, 2, 3)
            assert fetcher.wait_for(FetchFailed) == FetchFailed(2, "failed", "canvas has no image", 0)
            fetcher.wait_count(2, Fetched)


def test_an_image_that_breaks_off_fails_when_it_is_decoded_and_the_next_one_comes(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "0002.png").read_bytes()
    (folder / "0002.png").write_bytes(whole[:60])
    with running_origin(folder, service=False) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url)
        with running_fetcher(spec) as fetcher:
            fetcher.read_source()
            fetcher.fetch(1, 2)
            fetcher.wait_count(2, Fetched)
            fetcher.decode(2)
            failed: DecodeFailed = fetcher.wait_for(DecodeFailed)
            assert failed.page == 2
            assert "PNG" in failed.reason
            fetcher.decode(1)
            fetcher.wait_for(Decoded, page=1)
            assert fetcher.incarnation.marks.tasks() == []


def test_no_more_bytes_are_fetched_ahead_than_allowed(tmp_path: Path) -> None:
    images = tmp_path / "noise"
    images.mkdir()
    Image.effect_noise((400, 300), 80).save(images / "0001.bmp")
    size = (images / "0001.bmp").stat().st_size
    with running_origin(images, {"images": tell.delay(0.01)}, pages=12, service=False) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url, lookahead_bytes=3 * size + 100)
        with running_fetcher(spec) as fetcher:
            fetcher.read_source()
            fetcher.fetch(*range(1, 13))
            for page in range(1, 13):
                fetcher.wait_for(Fetched, page=page)
                held = len(fetcher.all_of(Fetched)) - len(fetcher.all_of(Decoded))
                assert held <= 3
                fetcher.decode(page)
                fetcher.wait_for(Decoded, page=page)
            assert origin.asked() == 12
            assert "LOOKAHEAD_BYTES" in fetcher.log


def test_a_page_over_the_whole_budget_still_comes(folder: Path, tmp_path: Path) -> None:
    with running_origin(folder, service=False) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url, lookahead_bytes=1)
        with running_fetcher(spec) as fetcher:
            fetcher.read_source()
            fetcher.fetch(1, 2, 3)
            for page in (1, 2, 3):
                fetcher.decode(page)
                fetcher.wait_for(Decoded, page=page)


def test_what_is_forgotten_is_not_answered_and_can_be_asked_for_again(folder: Path, tmp_path: Path) -> None:
    with running_origin(folder, {1: tell.silent(times=1), 2: tell.silent()}, service=False) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url, lookahead_bytes=1000)
        with running_fetcher(spec) as fetcher:
            fetcher.read_source()
            fetcher.fetch(1, 2, 3)
            fetcher.wait(lambda: True if origin.asked(1) else None)
            fetcher.say(Forget((1, 2)))
            fetcher.wait_for(Fetched, page=3)
            fetcher.say(Forget((3,)))
            fetcher.fetch(1)
            fetcher.wait_for(Fetched, page=1)
            fetcher.decode(1)
            fetcher.wait_for(Decoded, page=1)
            assert not fetcher.all_of(FetchFailed, DecodeFailed)
            assert [m.page for m in fetcher.all_of(Fetched)] == [3, 1]


def test_a_decode_order_without_bytes_is_answered(folder: Path, tmp_path: Path) -> None:
    with (
        running_origin(folder) as origin,
        running_fetcher(spec_for(tmp_path, manifest_url=origin.manifest_url)) as fetcher,
    ):
        fetcher.read_source()
        fetcher.say(Decode(4, 0, BYTES))
        assert fetcher.wait_for(DecodeFailed).page == 4


def test_the_dispatch_loop_beats_while_downloads_hang_and_stops_when_told(folder: Path, tmp_path: Path) -> None:
    with (
        running_origin(folder, {"images": tell.silent()}) as origin,
        running_fetcher(spec_for(tmp_path, manifest_url=origin.manifest_url)) as fetcher,
    ):
        fetcher.read_source()
        fetcher.fetch(1, 2, 3)
        fetcher.wait_count(3, FetchStarted)
        first = fetcher.incarnation.marks.beat[0]
        fetcher.wait(lambda: True if fetcher.incarnation.marks.beat[0] >= first + 2 else None)
        assert fetcher.end() == 0


def test_it_ends_quietly_when_the_supervisor_lets_go(folder: Path, tmp_path: Path) -> None:
    with (
        running_origin(folder, {"images": tell.silent()}) as origin,
        running_fetcher(spec_for(tmp_path, manifest_url=origin.manifest_url)) as fetcher,
    ):
        fetcher.read_source()
        fetcher.fetch(1)
        fetcher.wait_for(FetchStarted)
        fetcher.incarnation.outgoing.close()
        until = time.monotonic() + 20
        while not fetcher.incarnation.has_died() and time.monotonic() < until:
            fetcher.poll()
        assert fetcher.incarnation.reap().code == 0
        assert "Traceback" not in fetcher.log


def test_the_log_level_changes_while_it_runs(folder: Path, tmp_path: Path) -> None:
    with (
        running_origin(folder, {1: tell.status(500, times=1)}) as origin,
        running_fetcher(spec_for(tmp_path, manifest_url=origin.manifest_url)) as fetcher,
    ):
        fetcher.read_source()
        fetcher.say(LogLevel("DEBUG"))
        fetcher.fetch(1)
        fetcher.wait(lambda: True if "page 1, attempt 1: HTTP 500" in fetcher.log else None)
        assert not fetcher.all_of(ErrorLogged)


def test_a_signal_meant_for_the_supervisor_does_not_end_it(tmp_path: Path) -> None:
    with running_fetcher(spec_for(tmp_path, images=("http://127.0.0.1:9/a",))) as fetcher:
        fetcher.read_source()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(fetcher.pid, number)
        assert fetcher.end() == 0


def test_memory_stays_flat_over_many_pages(tmp_path: Path) -> None:
    images = tmp_path / "noise"
    images.mkdir()
    for number in range(1, 4):
        Image.effect_noise((900, 700), 80).convert("RGB").save(images / f"{number:04d}.jpg", quality=90 - number)
    count = 120
    with running_origin(images, pages=count, service=False) as origin:
        spec = spec_for(tmp_path, manifest_url=origin.manifest_url, lookahead_bytes=2**22)
        with running_fetcher(spec) as fetcher:
            fetcher.read_source()
            fetcher.fetch(*range(1, count + 1))
            sizes = []
            for page in range(1, count + 1):
                fetcher.decode(page)
                fetcher.wait_for(Decoded, page=page)
                if page % 40 == 0:
                    memory = psutil.Process(fetcher.pid).memory_full_info()
                    sizes.append(memory.uss)
            assert max(sizes) - min(sizes) < 12 * 2**20, sizes
