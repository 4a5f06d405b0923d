"""`batchpod check`: everything that is wrong with an environment and its pipeline file, said at once.

Owns the command and the questions that `--online` asks. The rules themselves are config.py's, the pipeline
file's actors/gpu/pipeline_file.py's, the manifest's pages.py's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.fetcher.errors import Answered, FetchError
from actors.fetcher.source import NO_IMAGE, Page, Source
from actors.gpu.pipeline_file import PipelineError, check_pipeline, read_text
from actors.messages import page_name
from actors.redact import for_log
from batchpod.errors import ConfigError, Permanent, RunError
from batchpod.settings import environment
from batchpod.settings.config import Config, arena_problem, unreadable
from batchpod.settings.environment import Command, shown
from batchpod.verdict import ExitCode
from supervisor.memory import Cgroup

if TYPE_CHECKING:
    from actors.fetcher.http import Fetched


def run(environ: Mapping[str, str], *, online: bool) -> int:
    """Print what is wrong, worth a warning, or (online) fine; the exit code that a run would end with."""
    problems: list[str] = []
    config = None
    try:
        config = Config.from_env(environ)
    except ConfigError as e:
        problems += e.problems
    if config is not None:
        problems += filter(None, [arena_problem(config, Cgroup().read())])
    problems += _pipeline_problems(environ.get("PIPELINE_PATH", ""))
    for problem in problems:
        print(f"problem: {for_log(problem)}")
    for warning in [*environment.near_misses(environ), *(_doubts(config) if config else ())]:
        print(f"warning: {warning}")
    if problems or config is None:
        print(f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'}: a run would end with exit 13")
        return ExitCode.PERMANENT
    print("the environment and the pipeline file are fine, as far as they can be judged without htrflow and the models")
    code = _online(config) if online else ExitCode.OK
    if code:
        print(f"something is wrong beyond them: a run would end with exit {int(code)}")
    return code


def _pipeline_problems(path: str) -> list[str]:
    if not path or unreadable(path):
        return []  # The environment's own problem says so.
    try:
        problems = check_pipeline(read_text(Path(path)))
    except PipelineError as e:
        problems = list(e.problems)
    return [f"PIPELINE_PATH={shown(path)}: {problem}" for problem in problems]


def _doubts(config: Config) -> Iterator[str]:
    if not config.s3_verify_tls:
        yield "S3_VERIFY_TLS is false: the store's certificate is not checked"
    if config.image_cache_bucket == config.s3_bucket:
        yield "IMAGE_CACHE_BUCKET names the results bucket: the image cache will be off"
    if (config.index_failure_count is None) != (config.backoff_limit_per_index is None):
        yield "only one of INDEX_FAILURE_COUNT and BACKOFF_LIMIT_PER_INDEX is set: no attempt is the last"


def _online(config: Config) -> int:
    """Ask the manifest's server, one image's server and the store; the worst of what they mean."""
    codes = [_store(config)]
    try:
        source = _source(config)
    except RunError as e:
        print(f"problem: setup: {for_log(e.error)}")
        codes.append(ExitCode.PERMANENT if isinstance(e, Permanent) else ExitCode.TRANSIENT)
    else:
        print(f"the source gives {len(source.pages)} pages (of {source.total})")
        for note in source.notes:
            print(f"warning: {note}")
        codes.append(asyncio.run(_first_image(config, source)))
    return max(codes)


def _source(config: Config) -> Source:
    from actors.fetcher.imagelist import read_images
    from batchpod.commands import pages

    if config.iiif_manifest_url is None:
        return read_images(config.images, volume=config.volume_ref, max_pages=config.max_pages)
    return pages.read(config.iiif_manifest_url, _values(config))


def _values(config: Config) -> dict[str, Any]:
    return {v.field: getattr(config, v.field) for v in environment.of(Command.PAGES)}


async def _first_image(config: Config, source: Source) -> int:
    """Ask for the first page that has an image, in each of the forms that a run would try."""
    from actors.fetcher.download import INFO_MOST_BYTES, Sizes, informed
    from batchpod.commands import pages

    number, page = next(((n, p) for n, p in enumerate(source.pages, 1) if p.error != NO_IMAGE), (0, None))
    if page is None:
        print("problem: no page has an image")
        return ExitCode.TRANSIENT
    sizes = Sizes(page, config.max_image_width)
    async with pages.client(_values(config)) as origin:
        while True:
            try:
                if sizes.url is None:
                    print(f"page {page_name(number)}: the sizes that its service has are read from its info.json")
                    await informed(sizes, lambda url: origin.get(url, most_bytes=INFO_MOST_BYTES))
                fetched = await origin.get(sizes.url or "", most_bytes=config.fetch_max_bytes)
            except FetchError as e:
                print(f"warning: page {page_name(number)}: {for_log(str(e))}")
                if not isinstance(e, Answered) or not sizes.refused(e):
                    return _unanswered(e)
            else:
                return await _judged(config, page_name(number), page, sizes.url or "", fetched)


def _unanswered(error: FetchError) -> int:
    """A page that is deferred ends a run with exit 1; one that is failed does not."""
    from actors.fetcher.errors import Unavailable

    deferred = isinstance(error, Unavailable) or (isinstance(error, Answered) and error.transient)
    return ExitCode.TRANSIENT if deferred else ExitCode.OK


async def _judged(config: Config, name: str, page: Page, url: str, fetched: Fetched) -> int:
    """Say what came, by the checks of a run, and what it says of the form of size that was asked for."""
    from actors.fetcher.judging import Judge

    judge = Judge(max_pixels=config.max_image_pixels, arena_bytes=config.pixel_arena_bytes)
    came = f"page {name}: {for_log(url)} gives {{}}, {len(fetched.data)} bytes, {fetched.content_type or 'no content type'}"
    try:
        found = await judge(fetched.data, fetched.content_type, for_log(url))
    except FetchError as e:
        print(came.format("nothing that a run would take"))
        print(f"warning: page {name}: {for_log(str(e))}")
        return _unanswered(e)
    finally:
        judge.close()
    print(came.format(f"a {found.format} of {found.width} x {found.height} pixels"))
    asked = config.max_image_width
    if page.service is None:
        print("it has no image service, so it comes at the size it has")
    elif url != page.url:
        print(f"warning: the size form does not work here; `{url.split('/')[-3]}` does")
    elif f"/full/{asked},/" not in url:
        print(f"its canvas is no wider than {asked} pixels, so it was asked for whole")
    elif found.width == asked:
        print(f"the size form works: it was asked for at {asked} pixels wide")
    else:
        print(f"warning: it was asked for at {asked} pixels wide and comes {found.width} wide")
    return ExitCode.OK


def _store(config: Config) -> int:
    from actors import s3
    from actors.uploader.store import Store

    prefix = f"{config.result_prefix}/"
    try:
        made = s3.client(config.s3_endpoint, verify_tls=config.s3_verify_tls, connections=1, attempts=2)
        with contextlib.closing(made):
            stored = sum(1 for _ in Store(made, config.s3_bucket).list(prefix))
    except s3.StoreError as e:
        print(f"problem: store: {e}")
        return ExitCode.PERMANENT if e.permanent else ExitCode.TRANSIENT
    print(f"the bucket {config.s3_bucket} answers: {stored} objects under {prefix} (writing is not tried)")
    return ExitCode.OK
