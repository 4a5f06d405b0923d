"""From the run's source to its page list on disk: the manifest is fetched, or built from the image list.

Owns what a failure here means for the run (batchpod/README.md, section 4): `SourceLost.permanent` decides between
exit 13 and 1.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import cast

import orjson

from actors.fetcher.download import wait_s
from actors.fetcher.errors import Answered, Denied, FetchError, Misdirected, TooLarge, Unavailable
from actors.fetcher.http import Client
from actors.fetcher.imagelist import build_manifest, read_images
from actors.fetcher.manifest import EmptyCanvas, read_manifest
from actors.fetcher.source import ManifestError, Source
from actors.redact import for_log
from actors.room import no_room
from actors.specs import FetcherSpec

log = logging.getLogger(__name__)

ATTEMPTS = 4
"""A manifest is asked for once more than a page: without it there is nothing to do."""
PERMANENT_STATUSES = frozenset({400, 401, 403, 404, 410})


class SourceLost(Exception):
    """There is no page list; `str()` is a plain sentence."""

    def __init__(self, text: str, *, permanent: bool, workdir_full: bool = False) -> None:
        super().__init__(text)
        self.permanent, self.workdir_full = permanent, workdir_full


async def read_source(client: Client, spec: FetcherSpec, *, reuse: bool) -> Source:
    """The page list, written to `spec.pages_path` (and the built manifest of an image list to
    `spec.source_path`); with `reuse` what was written there before.

    Raises:
        SourceLost: there is none.
    """
    try:
        if reuse:
            return await asyncio.to_thread(lambda: Source.from_json(Path(spec.pages_path).read_bytes()))
        source = await (_from_manifest(client, spec) if spec.manifest_url else _from_images(spec))
        await asyncio.to_thread(lambda: _write(spec.pages_path, source.to_json()))
    except ManifestError as e:
        raise SourceLost(str(e), permanent=True) from e
    except OSError as e:
        text = f"the page list cannot be kept in the workdir: {e}"
        raise SourceLost(text, permanent=False, workdir_full=no_room(e)) from e
    for note in source.notes:
        log.warning("%s", note)
    return source


async def _from_manifest(client: Client, spec: FetcherSpec) -> Source:
    url = spec.manifest_url or ""
    body = await fetch_manifest(client, url, most_bytes=spec.manifest_max_bytes, deadline_s=spec.download_deadline_s)
    return await asyncio.to_thread(
        read_manifest,
        body,
        max_width=spec.max_image_width,
        max_pages=spec.max_pages,
        url=url,
        empty_canvas=cast(EmptyCanvas, spec.empty_canvas),
    )


async def _from_images(spec: FetcherSpec) -> Source:
    source = read_images(spec.images, volume=spec.volume, max_pages=spec.max_pages)
    built = orjson.dumps(build_manifest(spec.images, volume=spec.volume))
    await asyncio.to_thread(_write, spec.source_path, built)
    return source


async def fetch_manifest(client: Client, url: str, *, most_bytes: int, deadline_s: float) -> bytes:
    """The manifest's body; all attempts together take at most `deadline_s`.

    Raises:
        SourceLost: it cannot be had.
    """
    last: FetchError | None = None
    try:
        async with asyncio.timeout(deadline_s):
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    return (await client.get(url, most_bytes=most_bytes)).data
                except (Answered, Unavailable) as e:
                    if isinstance(e, Answered) and not e.transient:
                        raise
                    last = e
                if attempt < ATTEMPTS:
                    log.info("the manifest, attempt %d of %d: %s", attempt, ATTEMPTS, last)
                    asked_s = last.retry_after_s if isinstance(last, Answered) else None
                    await asyncio.sleep(wait_s(attempt, asked_s))
    except TimeoutError:
        late = f"{for_log(url)}: not done after {deadline_s:g} s (DOWNLOAD_DEADLINE_SECONDS)"
        last = last or Unavailable(late)
    except TooLarge as e:
        raise SourceLost(f"the manifest is too large (MANIFEST_MAX_BYTES): {e}", permanent=True) from e
    except Denied as e:
        permanent = not isinstance(e, Misdirected)
        raise SourceLost(f"the manifest cannot be fetched: {e}", permanent=permanent) from e
    except Answered as e:
        permanent = e.status in PERMANENT_STATUSES
        raise SourceLost(f"the manifest cannot be fetched: {e}", permanent=permanent) from e
    raise SourceLost(f"the manifest cannot be fetched: {last}", permanent=False) from last


def _write(path: str, body: bytes) -> None:
    """All of it or nothing: a reader never meets half a file."""
    part = f"{path}.part"
    Path(part).write_bytes(body)
    os.replace(part, path)
