"""The image cache: a bucket that spares the origin (batchpod/README.md, section 8). Never fails or delays a page for good.

Trouble with one object is a miss; trouble with the bucket is said once, and where it cannot pass the cache is
left alone for the rest of the run. botocore is imported only when the cache is on, in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from actors.specs import FetcherSpec

log = logging.getLogger(__name__)

LAST_PAGE = 99999
"""Keys have five digits."""
_HOPELESS = frozenset({
    "NoSuchBucket", "InvalidBucketName", "InvalidAccessKeyId", "SignatureDoesNotMatch", "PermanentRedirect",
    "AuthorizationHeaderMalformed", "AllAccessDisabled", "AccountProblem", "UnauthorizedAccess",
})  # fmt: skip
_PASSING_TROUBLES = 3
"""Requests in a row that may fail before the cache is given up."""


def usable_bucket(spec: FetcherSpec, pages: int) -> str | None:
    """The cache's bucket if it is to be used; a line in the log where it was named and is not."""
    bucket = spec.cache_bucket
    if bucket is None:
        return None
    if bucket == spec.results_bucket:
        log.warning("image cache %s: off, it is the results bucket (IMAGE_CACHE_BUCKET)", bucket)
        return None
    if pages > LAST_PAGE:
        log.warning("image cache %s: off, the volume has a page past %d", bucket, LAST_PAGE)
        return None
    return bucket


class ImageCache:
    """Reads and stores images by page. Its calls run in threads of its own; the client is made from the start."""

    def __init__(self, spec: FetcherSpec, bucket: str) -> None:
        self._spec, self._bucket = spec, bucket
        self._threads = ThreadPoolExecutor(spec.download_concurrency, thread_name_prefix="cache")
        self._client = asyncio.get_running_loop().run_in_executor(self._threads, _client, spec)
        self._off = False
        self._said_denied = False
        self._troubles = 0

    @property
    def on(self) -> bool:
        return not self._off

    async def read(self, page: int, identity: str) -> bytes | None:
        """The stored image of `page` if it is the one that `identity` (cache_identity) names; None is a miss."""
        return None if self._off else await self._call(self._get, page, identity)

    async def store(self, page: int, identity: str, data: bytes) -> bool:
        """Store the image of `page`, over whatever was there; false when it could not be."""
        return not self._off and bool(await self._call(self._put, page, identity, data))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _key(self, page: int) -> str:
        return f"{self._spec.volume}/{self._spec.volume}_{page:05d}.jpg"

    async def _call(self, work: Any, page: int, *arguments: Any) -> Any:
        client = await asyncio.shield(self._client)
        if isinstance(client, Exception):
            self._give_up(client)
            return None
        loop = asyncio.get_running_loop()
        result, trouble = await loop.run_in_executor(self._threads, _tried, work, client, page, *arguments)
        if trouble is None:
            self._troubles = 0
        else:
            self._note(trouble)
        return result

    def _get(self, client: Any, page: int, identity: str) -> bytes | None:
        stored = client.get_object(Bucket=self._bucket, Key=self._key(page))
        with stored["Body"] as body:
            if stored["Metadata"].get("source") != identity or stored["ContentLength"] > self._spec.fetch_max_bytes:
                return None
            return bytes(body.read())

    def _put(self, client: Any, page: int, identity: str, data: bytes) -> bool:
        client.put_object(
            Bucket=self._bucket, Key=self._key(page), Body=data, ContentType="image/jpeg",
            Metadata={"source": identity},
        )  # fmt: skip
        return True

    def _note(self, trouble: Exception) -> None:
        """Judge what a request ran into: one page's, the whole bucket's for now, or for good."""
        code = _code(trouble)
        if self._off or code in ("NoSuchKey", "404"):
            return
        if code in ("AccessDenied", "403"):
            # Also what an absent object gives to a client that may not list: reading goes on.
            if not self._said_denied:
                log.warning("image cache %s: %s; what it refuses comes from the origin", self._bucket, _said(trouble))
            self._said_denied = True
            return
        self._troubles += 1
        if code in _HOPELESS or _is_settled(trouble) or self._troubles >= _PASSING_TROUBLES:
            self._give_up(trouble)

    def _give_up(self, trouble: Exception) -> None:
        if not self._off:
            self._off = True
            log.warning("image cache %s: off for the rest of the run: %s", self._bucket, _said(trouble))


def _tried(work: Any, client: Any, *arguments: Any) -> tuple[Any, Exception | None]:
    """What `work` gives, or the trouble that it ran into with the store or the network."""
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    try:
        return work(client, *arguments), None
    except (BotoCoreError, ClientError, HTTPError, OSError) as e:
        return None, e


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def _code(error: Exception) -> str:
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def _is_settled(error: Exception) -> bool:
    """Whether asking again cannot help: no credentials, or a name that no bucket can have."""
    from botocore.exceptions import NoCredentialsError, ParamValidationError, PartialCredentialsError

    return isinstance(error, NoCredentialsError | PartialCredentialsError | ParamValidationError)


def _client(spec: FetcherSpec) -> Any:
    """A client for the cache, or why there is none. Short waits: the origin is there if it does not answer."""
    from actors import s3

    try:
        return s3.client(
            spec.s3_endpoint, verify_tls=spec.s3_verify_tls, connections=spec.download_concurrency,
            connect_s=5, read_s=10, attempts=2,
        )  # fmt: skip
    except s3.StoreError as e:
        return e
