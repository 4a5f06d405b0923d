"""Whether the model Hub answers at all, asked over real sockets; huggingface_hub is left to its cache where it does not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from actors.gpu import hub


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """A server's address; every connection gets these bytes, with None nothing at all until the block ends."""
    ended = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                if answer is None:
                    ended.wait()
                else:
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def constants(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = pytest.importorskip("huggingface_hub.constants", reason="huggingface_hub is not installed")
    monkeypatch.setattr(found, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "ANSWER_S", 0.3)
    monkeypatch.setattr(hub, "PAUSE_S", 0.01)
    return found


def ask(monkeypatch: pytest.MonkeyPatch, constants: Any, endpoint: str) -> str | None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    return hub.unreached()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
    ],
)
def test_a_hub_that_answers_whatever_it_is_can_be_reached(
    monkeypatch: pytest.MonkeyPatch, constants: Any, answer: bytes
) -> None:
    with listening(answer) as url:
        assert ask(monkeypatch, constants, url) is None
        # What is wrong with its TLS is for huggingface_hub to say: it has certificates of its own.
        assert ask(monkeypatch, constants, url.replace("http:", "https:")) is None
    assert constants.HF_HUB_OFFLINE is False


def test_a_hub_that_never_answers_or_is_not_there_leaves_the_cache(
    monkeypatch: pytest.MonkeyPatch, constants: Any
) -> None:
    with listening(None) as url:
        assert ask(monkeypatch, constants, url) == f"the Hub at {url} cannot be reached (no answer within 0.3 s)"
    assert constants.HF_HUB_OFFLINE is True
    why = ask(monkeypatch, constants, url.replace("127.0.0.1:", "me:secret@127.0.0.1:"))
    assert why is not None
    assert "secret" not in why


def test_behind_a_proxy_the_hub_is_not_judged(monkeypatch: pytest.MonkeyPatch, constants: Any) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert ask(monkeypatch, constants, "http://127.0.0.1:9") is None
    assert constants.HF_HUB_OFFLINE is False
