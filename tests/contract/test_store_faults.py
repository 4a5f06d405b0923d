"""The store's client against S3-compatible stores that misbehave, and against a real one."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from actors import s3
from actors.uploader.store import Store
from tests.doubles import s3 as double
from tools.localstack import LocalStack


@pytest.fixture
def bad() -> Iterator[double.Store]:
    with double.running() as store:
        yield store


@contextlib.contextmanager
def open_store(url: str, bucket: str = "results", **settings: Any) -> Iterator[Store]:
    client = s3.client(url, **{"connections": 4, "read_s": 5, **settings})
    try:
        yield Store(client, bucket)
    finally:
        client.close()


def test_a_store_that_refuses_checksum_headers_takes_an_upload(bad: double.Store) -> None:
    bad.faults.refuse_checksums = True
    with open_store(bad.url) as store:
        store.put("a/å b.xml", b"<a/>", "application/xml", metadata={"page-size": "1x2"})
        assert store.get("a/å b.xml")[0] == b"<a/>"
        assert store.head("a/å b.xml") == {"page-size": "1x2"}


def test_no_upload_waits_for_a_100_continue_that_never_comes(bad: double.Store) -> None:
    with open_store(bad.url) as store:
        for number in range(40):
            store.put(f"{number}", b"x", "text/plain")
    assert bad.expected == 0
    assert not [request for request in bad.requests if "expect" in request.headers]


def test_a_store_that_never_answers_is_given_up_after_as_many_requests_as_allowed(bad: double.Store) -> None:
    bad.faults.black_hole = True
    with open_store(bad.url, read_s=0.2, attempts=2) as store, pytest.raises(s3.StoreError) as raised:
        store.put("a", b"x", "text/plain")
    assert not raised.value.permanent
    assert bad.count("PUT") == 2


def test_a_store_that_is_not_there_is_a_passing_error() -> None:
    with open_store("http://127.0.0.1:9", attempts=1) as store, pytest.raises(s3.StoreError) as raised:
        store.put("a", b"x", "text/plain")
    assert not raised.value.permanent


def test_a_slow_store_is_waited_for(bad: double.Store) -> None:
    bad.faults.delay_s = 0.3
    with open_store(bad.url) as store:
        store.put("a", b"x", "text/plain")
    assert bad.count("PUT") == 1


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (500, ""), (429, ""), (429, "Whatever"), (403, "RequestTimeTooSkewed")]
)
def test_an_error_that_passes_is_tried_again(bad: double.Store, status: int, code: str) -> None:
    bad.fail_first(2, status, code)
    with open_store(bad.url) as store:
        store.put("a", b"x", "text/plain")
    assert bad.count("PUT") == 3


@pytest.mark.parametrize(("status", "code"), [(429, ""), (503, "SlowDown")])
def test_no_more_than_the_allowed_requests_are_made(bad: double.Store, status: int, code: str) -> None:
    bad.fail_first(99, status, code)
    with open_store(bad.url, attempts=2) as store, pytest.raises(s3.StoreError):
        store.put("a", b"x", "text/plain")
    assert bad.count("PUT") == 2


def test_a_clock_that_stays_skewed_is_a_passing_error_that_names_the_clock(bad: double.Store) -> None:
    bad.fail_first(99, 403, "RequestTimeTooSkewed")
    with open_store(bad.url, attempts=1) as store, pytest.raises(s3.StoreError, match="set the node's clock") as raised:
        store.put("a", b"x", "text/plain")
    assert not raised.value.permanent


@pytest.mark.parametrize(
    ("status", "code", "permanent"),
    [
        (404, "NoSuchBucket", True),
        (400, "InvalidBucketName", True),
        (403, "AccessDenied", False),
        (301, "PermanentRedirect", False),
    ],
)
def test_only_a_bucket_that_cannot_be_is_permanent(bad: double.Store, status: int, code: str, permanent: bool) -> None:
    bad.fail_first(99, status, code)
    with open_store(bad.url, attempts=1) as store, pytest.raises(s3.StoreError, match=code) as raised:
        store.put("a", b"x", "text/plain")
    assert raised.value.permanent is permanent


def test_a_store_that_redirects_to_nowhere_is_asked_a_second_time_and_not_for_ever(bad: double.Store) -> None:
    bad.faults.answer = lambda request: (301, "" if request.method == "HEAD" else "PermanentRedirect")
    with open_store(bad.url, attempts=1) as store:
        for ask in (lambda: list(store.list("a/")), lambda: store.get("a"), lambda: store.head("a")):
            asked = len(bad.requests)
            with pytest.raises(s3.StoreError, match="301") as raised:
                ask()
            assert not raised.value.permanent
            assert len(bad.requests) - asked == 2


def test_whatever_an_odd_answer_sets_off_in_botocore_is_a_passing_error(bad: double.Store) -> None:
    bad.objects["a"] = double.Stored(b"x", {"x-amz-missing-meta": "many"}, datetime.now(UTC))
    with open_store(bad.url, attempts=1) as store, pytest.raises(s3.StoreError, match="HEAD a: ValueError: ") as raised:
        store.head("a")
    assert not raised.value.permanent


NO_SECRET = b"[default]\naws_access_key_id = x\n"


@pytest.mark.parametrize("data", [b"aws_access_key_id = x\n", bytes(range(256)), NO_SECRET])
def test_a_credentials_file_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    path = tmp_path / "credentials"
    path.write_bytes(data)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    with pytest.raises(s3.StoreError, match=f"cannot be set up .*{path}.*: .*(?:[Cc]redentials|parse)") as raised:
        s3.client("http://127.0.0.1:9", connections=1)
    assert not raised.value.permanent


@pytest.mark.parametrize(("name", "value"), [("AWS_PROFILE", "nope"), ("AWS_DEFAULT_REGION", "å å")])
def test_a_variable_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(s3.StoreError, match=f"{name}={value}.*: .*{value}"):
        s3.client("http://127.0.0.1:9", connections=1)


@pytest.mark.parametrize("url", ["http://exa mple", "http://localhost:99999"])
def test_an_endpoint_that_cannot_be_one_is_a_store_error(url: str) -> None:
    with pytest.raises(s3.StoreError), open_store(url, attempts=1) as store:
        store.get("a")


def test_an_object_that_is_not_there_is_told_from_other_errors(bad: double.Store) -> None:
    with open_store(bad.url) as store:
        for ask in (store.get, store.head):
            with pytest.raises(s3.MissingObject):
                ask("nothing")
        store.delete("nothing")


def test_a_listing_cut_without_a_token_is_gone_on_with_after_its_last_key(bad: double.Store) -> None:
    bad.faults.page_size, bad.faults.cut_listing_without_token = 3, True
    with open_store(bad.url) as store:
        for number in range(8):
            store.put(f"p/{number}", b"x", "text/plain")
        assert [entry.key for entry in store.list("p/")] == [f"p/{number}" for number in range(8)]


def test_a_listing_that_gives_no_way_on_is_an_error_and_no_endless_loop(bad: double.Store) -> None:
    bad.faults.page_size, bad.faults.cut_listing_without_token, bad.faults.deaf_to_start_after = 3, True, True
    with open_store(bad.url) as store:
        for number in range(8):
            store.put(f"p/{number}", b"x", "text/plain")
        with pytest.raises(s3.StoreError, match="gives no way on"):
            list(store.list("p/"))


def test_the_environments_proxy_is_ignored(bad: double.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with open_store(bad.url, attempts=1) as store:
        store.put("a", b"x", "text/plain")


def test_credentials_are_read_again_when_their_file_changes(
    bad: double.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))

    def rotate(text: str) -> None:
        (tmp_path / "new").write_text(text)
        os.replace(tmp_path / "new", path)

    def used() -> str:
        store.put("a", b"x", "text/plain")
        return bad.requests[-1].headers["authorization"].partition("Credential=")[2].partition("/")[0]

    rotate("[default]\naws_access_key_id = FIRST\naws_secret_access_key = x\n")
    with open_store(bad.url) as store:
        assert used() == "FIRST"
        rotate("[default]\naws_access_key_id = SECOND\naws_secret_access_key = x\n")
        assert used() == "SECOND"
        rotate("half a fi")
        assert used() == "SECOND"
        path.unlink()
        assert used() == "SECOND"


def test_as_many_threads_as_connections_open_none_in_vain(bad: double.Store, caplog: pytest.LogCaptureFixture) -> None:
    bad.faults.delay_s = 0.05
    with (
        caplog.at_level(logging.WARNING),
        open_store(bad.url, connections=32) as store,
        ThreadPoolExecutor(32) as threads,
    ):
        list(threads.map(lambda number: store.put(str(number), b"x", "text/plain"), range(96)))
    assert "pool is full" not in caplog.text


def test_a_real_listing_of_more_than_a_thousand_keys_is_whole(localstack: LocalStack, bucket: str) -> None:
    keys = [f"ns/å b+c/{number:04d}.xml" for number in range(1003)]
    with open_store(localstack.url, bucket, connections=8) as store:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda key: store.put(key, b"<a/>", "application/xml"), keys))
        assert [entry.key for entry in store.list("ns/å b+c/")] == keys


def test_a_real_bucket_that_does_not_exist_is_permanent(localstack: LocalStack) -> None:
    with open_store(localstack.url, "there-is-no-such-bucket") as store, pytest.raises(s3.StoreError) as raised:
        list(store.list("a/"))
    assert raised.value.permanent


def test_a_bucket_name_that_cannot_be_one_is_permanent_before_anything_is_sent(bad: double.Store) -> None:
    with open_store(bad.url, "not a bucket!") as store, pytest.raises(s3.StoreError) as raised:
        list(store.list("a/"))
    assert raised.value.permanent
    assert not bad.requests
