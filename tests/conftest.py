"""What every ring of tests shares: a clean environment, a real store, the shared material, and no leftovers."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from hypothesis import HealthCheck, settings

from tests.leaks import left_behind, look
from tools.localstack import CREDENTIALS, LocalStack, NotInstalled, client, interpreter, running

ROOT = Path(__file__).resolve().parent.parent
SHARED_VARIABLE = "BATCHPOD_SHARED"

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", settings.get_profile("default"), max_examples=5000)
settings.load_profile("default")


@pytest.fixture(scope="session", autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No AWS settings or proxies of the person who runs this, LocalStack's credentials as a file, a short TMPDIR.

    Yields that temporary directory: socket paths have to stay under 108 bytes.
    """
    credentials = tmp_path_factory.mktemp("aws") / "credentials"
    credentials.write_text(CREDENTIALS)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="bp") as short:
        for name in list(os.environ):
            if name.startswith("AWS_") or name.lower() in (
                "http_proxy",
                "https_proxy",
                "all_proxy",
                "no_proxy",
            ):
                patch.delenv(name)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("TMPDIR", short)
        patch.setattr(tempfile, "tempdir", short)
        yield Path(short)


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest, clean_environment: Path) -> Iterator[None]:
    """Fail a test after which a process, descriptor, thread, /dev/shm entry or socket file of its is still there."""
    directories = (clean_environment,)
    if "tmp_path" in request.fixturenames:
        directories += (request.getfixturevalue("tmp_path"),)
    test = request.node.nodeid
    before = look(test, directories)
    yield
    left = left_behind(test, directories, before)
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture(scope="session")
def localstack(clean_environment: Path) -> Iterator[LocalStack]:
    """A real S3 for the whole session. Only where LocalStack is not installed is the test skipped."""
    try:
        interpreter()
    except NotInstalled as error:
        pytest.skip(str(error))
    with running() as store:
        yield store


@pytest.fixture(scope="session")
def botocore_session() -> botocore.session.Session:
    """Read once: each client it makes would read the same service description again."""
    return botocore.session.Session()


@pytest.fixture
def s3(localstack: LocalStack, botocore_session: botocore.session.Session) -> Iterator[Any]:
    """A botocore S3 client for the store."""
    made = client(localstack.url, botocore_session)
    yield made
    made.close()


@pytest.fixture
def bucket(s3: Any) -> str:
    """A new, empty bucket."""
    name = f"results-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real manifests and page scans, which is not part of the repository."""
    path = Path(os.environ.get(SHARED_VARIABLE) or ROOT.parent / "shared")
    if not path.is_dir():
        pytest.skip(f"no material at {path}: name its folder with {SHARED_VARIABLE} to run this")
    return path
