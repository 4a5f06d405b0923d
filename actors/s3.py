"""The S3 client that every actor uses, and what its errors mean (batchpod/README.md, section 6).

Owns timeouts, retries, credentials and the quirks of S3-compatible stores; does not own keys nor what is stored.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import botocore.session
from botocore import handlers
from botocore.config import Config
from botocore.credentials import Credentials, SharedCredentialProvider
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from actors.redact import for_log

log = logging.getLogger(__name__)

BUCKET_CODES = frozenset({"NoSuchBucket", "InvalidBucketName"})
MISSING_CODES = frozenset({"404", "NoSuchKey", "NotFound"})
SKEWED = "RequestTimeTooSkewed"
_SETTINGS = ("AWS_CONFIG_FILE", "AWS_PROFILE", "AWS_DEFAULT_REGION")


class StoreError(Exception):
    """The store did not do what was asked. `permanent`: the bucket does not exist or its name cannot be one."""

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent


class MissingObject(StoreError):
    """There is no such object."""


class Forbidden(StoreError):
    """The store lets nobody with these credentials do this."""


class FileCredentials(Credentials):  # type: ignore[misc]
    """Credentials of the shared file, read again whenever the file changes (a rotated Secret).

    A file that is gone or half written leaves the last good ones in place.
    """

    def __init__(self, provider: SharedCredentialProvider, path: str) -> None:
        self._provider, self._path = provider, os.path.expanduser(path)
        self._lock = threading.Lock()
        self._seen = self._stamp()
        first = provider.load()
        if first is None:
            raise LookupError(f"no credentials in {path}")
        super().__init__(first.access_key, first.secret_key, first.token, method=first.method)

    def get_frozen_credentials(self) -> Any:
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                self._read_again()
            return super().get_frozen_credentials()

    def _read_again(self) -> None:
        try:
            fresh = self._provider.load()
        except BotoCoreError as e:
            log.warning("the credentials file changed and cannot be read, the old ones stay: %s", type(e).__name__)
            return
        if fresh is not None:
            self.access_key, self.secret_key, self.token = fresh.access_key, fresh.secret_key, fresh.token
            log.info("the credentials file changed and was read again")

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._path)
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)


class _FileProvider(SharedCredentialProvider):  # type: ignore[misc]
    """Takes the place of botocore's own reader of the shared file; the rest of its chain stays."""

    def load(self) -> Credentials | None:
        try:
            return FileCredentials(
                SharedCredentialProvider(self._creds_filename, self._profile_name), self._creds_filename
            )
        except LookupError:
            return None


class NoClient:
    """Stands for a client that cannot be made: whatever is asked of it raises the StoreError that says why."""

    def __init__(self, error: StoreError) -> None:
        self._error = error

    def __getattr__(self, operation: str) -> NoReturn:
        raise StoreError(str(self._error))


@contextlib.contextmanager
def _from_configuration() -> Iterator[None]:
    """Whatever botocore raises while it reads the AWS files and variables becomes a StoreError that names them."""
    try:
        yield
    except StoreError:
        raise
    except Exception as e:
        named = [f"{name}={os.environ[name]}" for name in _SETTINGS if name in os.environ]
        credentials = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
        read = ", ".join([f"credentials from {credentials}", *named])
        raise StoreError(for_log(f"the S3 client cannot be set up ({read}): {_one_line(e)}")) from e


@_from_configuration()
def session() -> Any:
    """A botocore session whose clients read changed credentials again. Clients of one session are made faster.

    Raises:
        StoreError: the AWS files or variables cannot be used.
    """
    made = botocore.session.get_session()
    resolver = made.get_component("credential_provider")
    path, profile = made.get_config_variable("credentials_file"), made.get_config_variable("profile")
    resolver.insert_before(SharedCredentialProvider.METHOD, _FileProvider(path, profile))
    return made


@_from_configuration()
def client(
    endpoint: str | None,
    *,
    of: Any = None,
    verify_tls: bool = True,
    connections: int,
    connect_s: float = 10,
    read_s: float = 60,
    attempts: int = 4,
) -> Any:
    """A botocore S3 client, to be shared by `connections` threads and made after the process was spawned; `of` is a
    session from here.

    With an `endpoint` (an S3-compatible store) addressing is path-style, checksums are sent only where S3 requires
    them and `Expect: 100-continue` never: many such stores refuse the first and stall on the second. Listings come
    with their keys as they are: LocalStack loses its place in one whose keys it has to percent-encode. A clock that
    the store calls skewed is tried again like any passing error.

    Raises:
        StoreError: the AWS files or variables, or the endpoint, cannot be used.
    """
    origin = of or session()
    compatible: dict[str, Any] = {}
    if endpoint:
        compatible = {
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
            "s3": {"addressing_style": "path"},
        }
    made = origin.create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=origin.get_config_variable("region") or "us-east-1",
        verify=None if verify_tls else False,
        config=Config(
            connect_timeout=connect_s,
            read_timeout=read_s,
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=connections,
            proxies={},
            **compatible,
        ),
    )
    events = made.meta.events
    if endpoint:
        events.unregister("before-call.s3", handlers.add_expect_header)
        events.unregister("before-parameter-build.s3.ListObjectsV2", handlers.set_list_objects_encoding_type_url)
    events.register_last("before-parameter-build.s3", _ask_once)
    events.register_first("needs-retry.s3", _Passing(attempts))
    return made


def _ask_once(model: Any, context: dict[str, Any], **_: Any) -> None:
    """botocore asks with HeadBucket where a redirect leads; one that answers that with a redirect it would ask for
    ever."""
    if model.name == "HeadBucket":
        context["s3_redirect"]["redirected"] = True


class _Passing:
    """Says to wait and try again where botocore's standard mode does not: a bare 429, a skewed clock."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts

    def __call__(self, response: Any, attempts: int, **_: Any) -> float | None:
        if response is None or attempts >= self._attempts:
            return None
        http, parsed = response
        if http.status_code == 429 or parsed.get("Error", {}).get("Code") == SKEWED:
            return float(0.5 * 2 ** (attempts - 1))
        return None


def failure(error: Exception, doing: str) -> StoreError:
    """What an error that botocore raised means, as a sentence that begins with `doing` (such as `PUT page/0001.xml`)."""
    if isinstance(error, ParamValidationError):
        return StoreError(for_log(f"{doing}: {_one_line(error)}"), permanent="Invalid bucket name" in str(error))
    if not isinstance(error, ClientError):
        kind = "" if isinstance(error, BotoCoreError) else f"{type(error).__name__}: "
        return StoreError(for_log(f"{doing}: {kind}{_one_line(error)}"))
    said = error.response.get("Error", {})
    code = str(said.get("Code") or "no code")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = for_log(f"{doing}: {code} (status {status}): {_one_line(said.get('Message') or 'no message')}")
    if code == SKEWED:
        text += "; this machine's clock and the store's differ too much: set the node's clock"
    if code in BUCKET_CODES:
        return StoreError(text, permanent=True)
    if code in MISSING_CODES or (code == "no code" and status == 404):
        return MissingObject(text)
    return Forbidden(text) if status == 403 else StoreError(text)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:500]
