"""The results page in a real browser: nginx, the viewer, a real store and the demo's origin."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from PIL import Image

from tests.browser import opened
from tools.localstack import LocalStack, NotInstalled, free_port
from tools.origin import running_origin
from tools.results_page import build_site, serving

VOLUME = Path(__file__).resolve().parents[2] / "tools" / "demo" / "volume"
PREFIX = "demo/demo"
PAGES = ("0001.jpg", "0002.jpg")


def alto(page: dict[str, Any]) -> bytes:
    """The page's ground truth as an ALTO file."""
    lines = "".join(
        f'<TextLine ID="r{r}l{n}" HPOS="{x0}" VPOS="{y0}" WIDTH="{x1 - x0}" HEIGHT="{y1 - y0}">'
        f'<String CONTENT="{line["text"].replace("&", "&amp;")}"/></TextLine>'
        for r, region in enumerate(page["regions"])
        for n, line in enumerate(region["lines"])
        for x0, y0, x1, y1 in [line["box"]]
    )
    return (
        '<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Layout>'
        f'<Page ID="p" WIDTH="{page["width"]}" HEIGHT="{page["height"]}"><PrintSpace><TextBlock ID="b">{lines}'
        "</TextBlock></PrintSpace></Page></Layout></alto>"
    ).encode()


@pytest.fixture(scope="module")
def site() -> Path:
    try:
        return build_site()
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture
def page(site: Path, localstack: LocalStack, s3: Any, bucket: str) -> Iterator[str]:
    """The address of a results page with a volume of two pages behind it."""
    for program, package in (("chromium", "chromium"), ("nginx", "nginx-light")):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: install Debian's package {package}")
    truth = json.loads((VOLUME / "truth.json").read_bytes())
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    prefix = f"{base}/results/{PREFIX}"
    where = {"store": localstack.url, "bucket": bucket, "volume": PREFIX, "port": port}
    with (
        running_origin(VOLUME, pages=len(PAGES)) as origin,
        serving(site, origin=origin.host_url, **where) as url,
    ):
        with urlopen(f"{base}/iiif/volume/manifest.json") as answer:
            manifest = json.load(answer)
        manifest["id"] = f"{prefix}/iiif.json"
        for number, (canvas, name) in enumerate(zip(manifest["items"], PAGES, strict=True), 1):
            key = f"{PREFIX}/alto/{number:04d}.xml"
            s3.put_object(Bucket=bucket, Key=key, Body=alto(truth[name]), ContentType="application/xml")
            canvas |= {"id": f"{prefix}/canvas/{number:04d}", "label": {"none": [f"leaf {number}"]}}
            canvas |= {"width": truth[name]["width"], "height": truth[name]["height"]}
            canvas["items"][0]["items"][0]["target"] = canvas["id"]
            canvas["seeAlso"] = [{"id": f"{base}/results/{key}", "type": "Dataset", "format": "application/xml+alto"}]
        document = json.dumps(manifest).encode()
        s3.put_object(Bucket=bucket, Key=f"{PREFIX}/iiif.json", Body=document, ContentType="application/json")
        yield url


# Mirador draws the outlines on sheets of its own over the image, in the blue of page.js.
OUTLINED = """[...document.querySelectorAll('#viewer canvas')].some(sheet => {
    const pixels = sheet.getContext('2d')?.getImageData(0, 0, sheet.width, sheet.height).data ?? [];
    let blue = 0;
    for (let i = 0; i < pixels.length; i += 4) {
        if (pixels[i + 3] > 100 && pixels[i + 2] - pixels[i] > 100) blue += 1;
    }
    return blue > 200;
})"""


def test_a_page_shows_its_image_its_text_and_the_outlines_of_its_lines(page: str) -> None:
    truth = json.loads((VOLUME / "truth.json").read_bytes())
    expected = [line["text"] for region in truth[PAGES[0]]["regions"] for line in region["lines"]]

    async def look() -> bytes:
        async with opened(f"{page}/") as tab:
            await tab.until("document.querySelectorAll('#lines li').length")
            assert await tab.value("document.getElementById('title').textContent") == "leaf 1"
            texts = await tab.value("[...document.querySelectorAll('#lines li')].map(item => item.textContent)")
            assert texts == expected
            await tab.until("performance.getEntriesByType('resource').some(r => r.name.includes('/default.jpg'))")
            await tab.until(OUTLINED)
            await tab.value("document.querySelector('#lines li').click()")
            await tab.until("document.querySelector('#lines li').getAttribute('aria-current') === 'true'")
            return await tab.screenshot()

    shot = Image.open(io.BytesIO(asyncio.run(look()))).convert("L")
    # Written ink within the viewer's half: the image is drawn, not only asked for.
    assert shot.crop((310, 110, 620, 240)).getextrema()[0] < 100


def test_the_text_follows_the_page_that_is_shown(page: str) -> None:
    previous = "document.querySelector('[aria-label=\"Previous item\"]')"

    async def look() -> None:
        async with opened(f"{page}/viewer/?manifest=/results/{PREFIX}/iiif.json&page=2") as tab:
            await tab.until("document.getElementById('title').textContent === 'leaf 2'")
            await tab.until(f"{previous} !== null")
            await tab.value(f"{previous}.click()")
            await tab.until("document.getElementById('title').textContent === 'leaf 1'")
            await tab.until("document.querySelectorAll('#lines li').length")

    asyncio.run(look())


def test_a_volume_that_is_not_published_is_said_in_a_sentence(page: str) -> None:
    async def look() -> None:
        async with opened(f"{page}/viewer/?manifest=/results/demo/none/iiif.json") as tab:
            await tab.until("document.getElementById('note').textContent.includes('once its first pages')")

    asyncio.run(look())


def test_the_bucket_is_read_only_from_outside(page: str) -> None:
    async def put() -> int:
        import aiohttp

        async with (
            aiohttp.ClientSession() as session,
            session.put(f"{page}/results/{PREFIX}/iiif.json", data=b"{}") as answer,
        ):
            return answer.status

    assert asyncio.run(put()) == 403
