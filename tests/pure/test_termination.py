"""The termination message: always one JSON object, always small enough, never half a character."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchpod.reporting import termination
from batchpod.verdict import ExitCode, Verdict

TRUNCATED = "...(truncated)"


def test_the_message_says_where_what_and_whether_to_try_again(tmp_path: Path) -> None:
    path = tmp_path / "message"
    path.write_text("x" * 9000)
    termination.write(str(path), Verdict(ExitCode.PERMANENT, "setup", "HTTP 404 for http://u:p@h/m?token=t"))
    assert json.loads(path.read_text()) == {
        "stage": "setup",
        "permanent": True,
        "error": "HTTP 404 for http://h/m",
    }
    termination.write(str(path), Verdict(ExitCode.SIGTERM, "stream", "SIGTERM"))
    assert path.read_bytes() == b'{"stage":"stream","permanent":false,"error":"SIGTERM"}'


def test_an_error_of_3500_characters_is_whole_and_a_longer_one_is_cut() -> None:
    assert json.loads(termination.body("s", False, "x" * 3500))["error"] == "x" * 3500
    cut = json.loads(termination.body("s", False, "x" * 3501))["error"]
    assert cut == "x" * (3500 - len(TRUNCATED)) + TRUNCATED


@given(st.text(alphabet=st.characters(), max_size=300).map(lambda text: text * 40))
@example("å" * 5000)
@example("\U0001f4a9" * 3600)
@example("\x00" * 4000)
@example('"\\' * 2000)
@example("\ud800" * 4000)
def test_any_error_fits_into_4000_bytes(error: str) -> None:
    message = termination.body("publish", True, error)
    assert len(message) <= 4000
    decoded = json.loads(message.decode("utf-8"))
    assert set(decoded) == {"stage", "permanent", "error"}
    assert len(decoded["error"]) <= 3500


@pytest.mark.parametrize("character", ["å", "\U0001f4a9", "\x01"])
def test_a_cut_uses_the_room_there_is(character: str) -> None:
    message = termination.body("s", True, character * 9000)
    assert len(message) > 3980
    assert json.loads(message)["error"].strip(character) == TRUNCATED


def test_a_path_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, tmp_path / "no" / "message", pipe):
        caplog.clear()
        termination.write(str(path), Verdict(ExitCode.TRANSIENT, "setup", "e"))
        assert [r.levelno for r in caplog.records] == [logging.WARNING]
        assert str(path) in caplog.text
