"""A fetcher and servers that speak TLS, directly and through the environment's proxy; each is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from actors.messages import Decoded, Fetched, FetchFailed, ReadSource, SourceFailed
from tests.doubles.proxy import Proxy, running_proxy
from tests.doubles.tls import Authority
from tests.fetcher_process import FetcherProcess, running_fetcher, spec_for
from tools import origin as tell
from tools.origin import Origin, running_origin

ROOT = Path(__file__).resolve().parents[2]
HOST = "iiif.archive.invalid"
PAGES = 3


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    images.mkdir()
    for number in range(1, PAGES + 1):
        Image.effect_noise((300, 200), 40).convert("RGB").save(images / f"{number:04d}.jpg")
    return images


@pytest.fixture
def secure(folder: Path, authority: Authority) -> Iterator[Origin]:
    """An origin that is this machine and HOST."""
    with running_origin(folder, ssl_context=authority.server("IP:127.0.0.1", f"DNS:{HOST}")) as origin:
        yield origin


def elsewhere(url: str) -> str:
    """The same origin under a name that only the proxy reaches."""
    return url.replace("127.0.0.1", HOST)


def all_come(fetcher: FetcherProcess) -> None:
    assert fetcher.read_source() == PAGES
    fetcher.fetch(*range(1, PAGES + 1))
    for page in range(1, PAGES + 1):
        fetcher.decode(page)
        fetcher.wait_for(Decoded, page=page)


def refused(fetcher: FetcherProcess) -> SourceFailed:
    fetcher.say(ReadSource())
    failed: SourceFailed = fetcher.wait_for(SourceFailed)
    return failed


def batchpod_pages(url: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "batchpod", "pages", url]
    env = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


def test_an_https_origin_with_a_certificate_that_is_trusted(
    secure: Origin, authority: Authority, tmp_path: Path
) -> None:
    spec = spec_for(tmp_path, manifest_url=secure.manifest_url)
    with running_fetcher(spec, SSL_CERT_FILE=str(authority.file)) as fetcher:
        all_come(fetcher)


def test_a_certificate_that_is_not_trusted_is_one_sentence_with_its_remedy(secure: Origin, tmp_path: Path) -> None:
    with running_fetcher(spec_for(tmp_path, manifest_url=secure.manifest_url)) as fetcher:
        failed = refused(fetcher)
        assert not failed.permanent
        place = secure.host_url.removeprefix("https://")
        assert failed.error == (
            f"the manifest cannot be fetched: the certificate of {place} is not accepted (unable to get local issuer "
            "certificate): have the server's certificate mended, or name a file with the authority that signed it "
            "with SSL_CERT_FILE"
        )
        assert secure.requests == []


def test_a_certificate_of_another_host_and_a_server_without_tls(
    folder: Path, authority: Authority, tmp_path: Path
) -> None:
    with running_origin(folder, ssl_context=authority.server("DNS:other.invalid")) as origin:
        done = batchpod_pages(origin.manifest_url, SSL_CERT_FILE=str(authority.file))
        assert done.returncode == 1
        assert "is not accepted (IP address mismatch" in done.stderr
    with running_origin(folder) as plain:
        done = batchpod_pages(plain.manifest_url.replace("http:", "https:"))
        assert done.returncode == 1
        assert "does not speak TLS as it should" in done.stderr
        assert "Traceback" not in done.stderr


def test_redirects_between_http_and_https_are_followed_each_hop_by_its_own_scheme(
    secure: Origin, folder: Path, authority: Authority, tmp_path: Path
) -> None:
    with running_origin(folder) as plain:
        plain.fault("manifest", tell.redirect(secure.manifest_url, 308))
        secure.fault(2, tell.redirect(plain.image_urls[1], 307))
        secure.fault(3, tell.redirect(f"{plain.host_url}/back", 301))
        plain.fault("*", tell.redirect(secure.image_urls[0]))
        spec = spec_for(tmp_path, manifest_url=plain.manifest_url)
        with running_fetcher(spec, SSL_CERT_FILE=str(authority.file)) as fetcher:
            all_come(fetcher)


def test_an_https_origin_is_reached_through_a_tunnel_that_is_kept(
    secure: Origin, authority: Authority, tmp_path: Path
) -> None:
    proxy = Proxy(authorization="Proxy-Authorization: Basic bWU6cHc=")
    spec = spec_for(tmp_path, manifest_url=elsewhere(secure.manifest_url), allow_private=False, download_concurrency=2)
    with running_proxy(proxy), running_fetcher(
        spec, SSL_CERT_FILE=str(authority.file), HTTPS_PROXY=proxy.url.replace("://", "://me:pw@")
    ) as fetcher:  # fmt: skip
        all_come(fetcher)
        place = elsewhere(secure.host_url).removeprefix("https://")
        assert 1 <= len(proxy.tunnels) <= 2
        assert set(proxy.tunnels) == {place}
        assert all("User-Agent: batchpod/test" in head for head in proxy.heard)
        sent = [name.lower() for request in secure.requests for name in request.headers]
        assert "proxy-authorization" not in sent
        assert "pw" not in fetcher.log


def test_a_redirect_inside_a_tunnel_to_a_metadata_address_is_refused_before_the_proxy_is_asked(
    secure: Origin, authority: Authority, tmp_path: Path
) -> None:
    secure.fault(2, tell.redirect("https://169.254.169.254/latest"))
    spec = spec_for(tmp_path, manifest_url=elsewhere(secure.manifest_url))
    with running_proxy(Proxy()) as proxy, running_fetcher(
        spec, SSL_CERT_FILE=str(authority.file), https_proxy=proxy.url
    ) as fetcher:  # fmt: skip
        fetcher.read_source()
        fetcher.fetch(1, 2, 3)
        failed: FetchFailed = fetcher.wait_for(FetchFailed)
        assert (failed.page, failed.outcome) == (2, "failed")
        assert "a link-local address" in failed.reason
        fetcher.wait_count(2, Fetched)
        assert not [place for place in proxy.tunnels if "169.254" in place]


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        (Proxy(authorization="Proxy-Authorization: Basic xyz"), "it answers 407 (Proxy Authentication Required)"),
        (Proxy(refusal="403 Forbidden"), "it answers 403 (Forbidden)"),
    ],
)
def test_a_proxy_that_refuses_is_named_with_its_answer(secure: Origin, proxy: Proxy, said: str) -> None:
    with running_proxy(proxy):
        done = batchpod_pages(elsewhere(secure.manifest_url), HTTPS_PROXY=proxy.url.replace("://", "://me:secret@"))
    assert done.returncode == 1
    place = elsewhere(secure.host_url).removeprefix("https://")
    assert f"the proxy 127.0.0.1:{proxy.port} does not connect to {place}: {said}" in done.stderr
    assert "secret" not in done.stderr
    assert secure.requests == []


def test_a_certificate_is_checked_inside_a_tunnel_too(secure: Origin) -> None:
    with running_proxy(Proxy()) as proxy:
        done = batchpod_pages(elsewhere(secure.manifest_url), HTTPS_PROXY=proxy.url)
    assert done.returncode == 1
    assert f"the certificate of {elsewhere(secure.host_url).removeprefix('https://')} is not accepted" in done.stderr
    assert secure.requests == []


def test_a_proxy_that_is_not_there_is_named(secure: Origin) -> None:
    with running_proxy(Proxy()) as proxy:
        pass
    done = batchpod_pages(elsewhere(secure.manifest_url), HTTPS_PROXY=proxy.url)
    assert done.returncode == 1
    assert f"the proxy 127.0.0.1:{proxy.port} cannot be reached: Connection refused" in done.stderr
    done = batchpod_pages(elsewhere(secure.manifest_url), HTTPS_PROXY="http://proxy.invalid:3128")
    assert "proxy.invalid cannot be resolved" in done.stderr


@pytest.mark.parametrize("no_proxy", ["127.0.0.1", "10.0.0.0/8, 127.0.0.0/8", "*"])
def test_what_no_proxy_names_is_asked_directly(secure: Origin, authority: Authority, no_proxy: str) -> None:
    with running_proxy(Proxy()) as proxy:
        environ = {"SSL_CERT_FILE": str(authority.file), "HTTPS_PROXY": proxy.url, "NO_PROXY": no_proxy}
        assert batchpod_pages(secure.manifest_url, **environ).returncode == 0
        assert proxy.heard == []


def test_plain_http_goes_through_its_own_proxy_and_not_through_the_other(folder: Path, tmp_path: Path) -> None:
    with running_origin(folder) as origin, running_proxy(Proxy()) as proxy:
        spec = spec_for(tmp_path, manifest_url=elsewhere(origin.manifest_url))
        with running_fetcher(spec, HTTP_PROXY=proxy.url, HTTPS_PROXY="http://127.0.0.1:9") as fetcher:
            all_come(fetcher)
        assert proxy.tunnels == []
        assert proxy.heard[0].startswith(f"GET {elsewhere(origin.manifest_url)} HTTP/1.1\r\n")
