"""The run log on disk and its shipped copy."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import childlog
from actors.runlog import HEAD_BYTES, LAST_BYTES, MARKER, MIB, RunLog, ShippedCopy, fingerprint


def shipped_copy(directory: Path) -> bytes:
    return ShippedCopy(directory).take()


def filled(directory: Path, lines: int, width: int = 1000) -> list[bytes]:
    written = [f"{number:07d}".encode() + b" word" * (width // 5 - 2) + b" .\n" for number in range(lines)]
    log = RunLog(directory)
    for start in range(0, lines, 37):
        log.append(b"".join(written[start : start + 37]))
    log.close()
    return written


@pytest.mark.parametrize("lines", [0, 1, 1000, 2500, 4000])
def test_a_log_of_up_to_four_mebibytes_is_shipped_whole(tmp_path: Path, lines: int) -> None:
    written = filled(tmp_path, lines)
    assert shipped_copy(tmp_path) == b"".join(written)


@pytest.mark.parametrize("lines", [4300, 5000, 7000, 20000])
def test_of_a_longer_log_the_middle_goes_at_line_ends(tmp_path: Path, lines: int) -> None:
    written = filled(tmp_path, lines)
    first, marker, last = shipped_copy(tmp_path).partition(MARKER)
    assert marker
    assert first == b"".join(written[: HEAD_BYTES // len(written[0])])
    assert last == b"".join(written[-(LAST_BYTES // len(written[0])) :])


def test_the_disk_holds_a_bounded_part_however_long_the_log(tmp_path: Path) -> None:
    filled(tmp_path, 30000)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 6 * MIB


@given(chunks=st.lists(st.binary(max_size=200), max_size=30))
def test_whatever_bytes_come_in_whatever_pieces_are_kept(
    chunks: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log = RunLog(directory)
    for chunk in chunks:
        log.append(chunk)
    log.close()
    whole = b"".join(chunks)
    assert (log.size, log.changes, log.lost_bytes) == (len(whole), len(chunks), 0)
    assert (directory / "head").read_bytes() == whole
    shipped_copy(directory).decode()


def test_the_shipped_copy_is_redacted_and_the_log_on_disk_is_not(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.append(b"GET https://me:pw@h.example/a?token=secret&w=1 401\nnothing \xff here\n")
    log.close()
    assert shipped_copy(tmp_path) == "GET https://h.example/a 401\nnothing \ufffd here\n".encode()
    assert b"secret" in (tmp_path / "head").read_bytes()


def test_a_last_line_without_an_end_larger_than_the_copy_does_not_break_it(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.append(b"first\n" + b"x y " * (6 * MIB // 4))
    log.close()
    assert shipped_copy(tmp_path).startswith(b"first\n" + MARKER)


def test_the_fingerprint_changes_with_every_append_and_with_nothing_else(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    seen = {fingerprint(tmp_path)}
    for _ in range(12):
        assert fingerprint(tmp_path) == fingerprint(tmp_path)
        log.append(b"x" * (MIB // 3))
        seen.add(fingerprint(tmp_path))
    log.close()
    assert len(seen) == 13


def test_a_segment_that_vanishes_while_it_is_read_costs_only_itself(tmp_path: Path) -> None:
    filled(tmp_path, 3000)
    (tmp_path / "tail.0").unlink()
    assert MARKER in shipped_copy(tmp_path)


def test_a_copy_taken_again_and_again_while_the_log_grows_is_the_same_as_a_fresh_one(tmp_path: Path) -> None:
    log, copy = RunLog(tmp_path), ShippedCopy(tmp_path)
    line = b"GET https://h.example/a?token=s3cr3t" + b" word" * 800 + b" %d\n"
    for number in range(60):
        log.append(line % number * 30)
        if number % 20 == 19:
            taken = copy.take()
            assert taken == shipped_copy(tmp_path)
            assert b"s3cr3t" not in taken
    log.close()


def test_a_new_log_forgets_the_one_before(tmp_path: Path) -> None:
    filled(tmp_path, 3000)
    RunLog(tmp_path).close()
    assert shipped_copy(tmp_path) == b""


def test_a_full_disk_loses_what_comes_and_raises_nothing(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.append(b"kept\n")
    log.close()
    broken = RunLog(tmp_path)
    broken._file.close()
    broken._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    broken.append(b"lost\n")
    broken.close()
    assert broken.lost_bytes == 5


def test_a_childs_log_line_is_one_write_of_a_redacted_line(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    handler = childlog.LineHandler(None, writer)
    record = logging.LogRecord(
        "actors.uploader.store", logging.WARNING, "", 0, "GET %s", ("https://h.example/a?key=1",), None
    )
    handler.emit(record)
    os.close(writer)
    assert os.read(reader, 4096) == b"WARNING uploader.store GET https://h.example/a\n"
    os.close(reader)


def test_a_log_message_that_cannot_be_made_does_not_fail_the_work() -> None:
    reader, writer = os.pipe()
    childlog.LineHandler(None, writer).emit(logging.LogRecord("actors.x", logging.INFO, "", 0, "%d", ("no",), None))
    os.close(writer)
    assert os.read(reader, 4096) == b""
    os.close(reader)
