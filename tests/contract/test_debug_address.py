"""Where the debug socket is, and what a person is told who asks in the wrong place."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervisor.debug import address
from supervisor.debug.address import NotFound, Several, existing, find, socket_path


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def bound() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def bind(stack: ExitStack, path: Path) -> Path:
    made = stack.enter_context(socket.socket(socket.AF_UNIX))
    made.bind(str(path))
    stack.callback(path.unlink)
    made.listen()
    return path


def test_the_socket_lies_in_the_working_directory(short: Path):
    assert socket_path(short) == short / "supervisor.sock"


def test_a_path_over_the_platforms_limit_gets_a_short_name_that_the_client_finds_too(
    short: Path, bound: ExitStack, monkeypatch: pytest.MonkeyPatch
):
    workdir = short / ("w" * 60) / ("x" * 60)
    workdir.mkdir(parents=True)
    path = socket_path(workdir)
    assert len(str(path)) <= address.LONGEST_BYTES
    assert path.parent == Path(tempfile.gettempdir())
    assert existing(workdir) is None
    bind(bound, path)
    assert find(None, {"WORKDIR_PATH": str(workdir)}) == path
    assert find(str(workdir), {}) == path
    assert socket_path(workdir.with_name("y")) != path


def test_a_planted_link_or_somebody_elses_socket_under_the_short_name_is_not_taken(short: Path, bound: ExitStack):
    workdir = short / ("w" * 60) / ("x" * 60)
    workdir.mkdir(parents=True)
    path = socket_path(workdir)
    real = bind(bound, short / "real.sock")
    path.symlink_to(real)
    assert existing(workdir) is None
    path.unlink()
    bind(bound, path)
    assert existing(workdir) == path
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
        assert existing(workdir) is None
        os.chown(workdir, 65534, 65534)
        assert existing(workdir) == path


def test_no_short_name_is_made_where_anybody_could_take_it_away(short: Path, monkeypatch: pytest.MonkeyPatch):
    workdir, shared = short / ("w" * 60) / ("x" * 60), short / "shared"
    workdir.mkdir(parents=True)
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    assert socket_path(workdir).parent == shared
    shared.chmod(0o777)
    assert socket_path(workdir).parent == Path("/tmp")
    shared.chmod(0o1777)
    assert socket_path(workdir).parent == shared


def test_a_named_socket_or_working_directory_goes_before_the_environment(short: Path, bound: ExitStack):
    path = bind(bound, short / "supervisor.sock")
    elsewhere = {"WORKDIR_PATH": "/nowhere"}
    assert find(str(path), elsewhere) == path
    assert find(str(short), elsewhere) == path
    with pytest.raises(NotFound, match="there is no socket at /nowhere/at/all"):
        find("/nowhere/at/all", {})


def test_none_in_workdir_path_is_said_with_the_ones_that_are_alive(short: Path, bound: ExitStack):
    path = bind(bound, short / "supervisor.sock")
    with pytest.raises(NotFound) as raised:
        find(None, {"WORKDIR_PATH": "/nowhere"})
    text = str(raised.value)
    assert text.startswith("there is no socket at /nowhere/supervisor.sock: no run is working in WORKDIR_PATH")
    assert str(path) in text
    assert "name one with --socket" in text


def test_without_workdir_path_the_only_run_alive_is_meant_and_several_are_listed(
    short: Path, bound: ExitStack, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(address, "DEFAULT_WORKDIR", "/nowhere")
    one, other = short / "one", short / "other"
    for folder in (one, other):
        folder.mkdir()
        bind(bound, folder / "supervisor.sock")
    ours = [path for path in address.listening() if short in path.parents]
    assert ours == [one / "supervisor.sock", other / "supervisor.sock"]
    monkeypatch.setattr(address, "listening", lambda: ours)
    with pytest.raises(
        Several, match=r"several runs are alive here: name the one you mean with --socket: .*one.*other"
    ):
        find(None, {})
    monkeypatch.setattr(address, "listening", lambda: ours[:1])
    assert find(None, {}) == ours[0]
    monkeypatch.setattr(address, "listening", lambda: [])
    with pytest.raises(NotFound, match="no run is alive on this machine"):
        find(None, {})


def test_the_default_is_the_pods_working_directory(short: Path, bound: ExitStack, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(address, "DEFAULT_WORKDIR", str(short))
    path = bind(bound, short / "supervisor.sock")
    assert find(None, {}) == path
