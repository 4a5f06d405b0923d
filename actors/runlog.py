"""The run log on disk: everything that every process wrote, bounded, and the redacted copy that is shipped.

The supervising process writes (`RunLog`), the uploader reads (`shipped_copy`, `fingerprint`); neither waits for the
other. On disk: `head`, the first MiB, then `tail.0`, `tail.1`, … of half a MiB each, the oldest of which are unlinked.
The tail keeps 3 MiB at least, so that a log of up to 4 MiB is whole.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from actors.redact import for_log

MIB = 1024 * 1024
HEAD_BYTES = MIB
SEGMENT_BYTES = MIB // 2
FULL_SEGMENTS = 6
WHOLE_BYTES = 4 * MIB
"""A shipped copy up to this size is whole (contract.md section 6)."""
LAST_BYTES = 2 * MIB
MARKER = b"[the middle of this log was left out: it is over 4 MiB; its first 1 MiB and last 2 MiB are here]\n"

_SEGMENT = re.compile(r"tail\.(\d+)")


class RunLog:
    """Appends to the log in `directory` (created, and emptied of an earlier run's). Owned by one thread."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            path.unlink()
        self._file = (self._directory / "head").open("wb", buffering=0)
        self._room, self._segment = HEAD_BYTES, -1
        self.size = 0
        """Bytes taken so far."""
        self.changes = 0
        """Rises with every append."""
        self.lost_bytes = 0
        """Bytes that a full workdir did not take: given up, since logging must not end a run."""

    def append(self, data: bytes) -> None:
        """Add `data`; it may end anywhere in a line."""
        self.size += len(data)
        self.changes += 1
        view = memoryview(data)
        while view:
            try:
                if not self._room:
                    self._rotate()
                written = self._file.write(view[: self._room]) or 0
            except OSError:
                self.lost_bytes += len(view)
                return
            self._room -= written
            view = view[written:]

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        following = (self._directory / f"tail.{self._segment + 1}").open("wb", buffering=0)
        self._file.close()
        self._file, self._room = following, SEGMENT_BYTES
        self._segment += 1
        (self._directory / f"tail.{self._segment - FULL_SEGMENTS - 1}").unlink(missing_ok=True)


def fingerprint(directory: str | Path) -> tuple[int, int]:
    """Changes whenever something was appended: the newest segment's number and its size in bytes."""
    head, segments = Path(directory) / "head", _segments(Path(directory))
    newest = segments[-1][1] if segments else head
    return (segments[-1][0] if segments else -1, _size(newest))


def shipped_copy(directory: str | Path) -> bytes:
    """The log so far, redacted line by line; over 4 MiB its first 1 MiB, a marker line and its last 2 MiB, cut at
    line ends. A log that is being written meanwhile is read up to some moment of that time."""
    head = _read(Path(directory) / "head")
    segments = [(number, _read(path)) for number, path in _segments(Path(directory))]
    gap = bool(segments) and segments[0][0] > 0
    tail = b"".join(data for _, data in segments)
    if not gap:
        whole = _redacted(head + tail)
        if len(whole) <= WHOLE_BYTES:
            return whole
        return _first(whole) + MARKER + _last(whole)
    return _first(_redacted(head)) + MARKER + _last(_redacted(tail[tail.find(b"\n") + 1 :]))


def _redacted(data: bytes) -> bytes:
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    return "".join(map(for_log, lines)).encode()


def _first(text: bytes) -> bytes:
    return text[: text.rfind(b"\n", 0, HEAD_BYTES) + 1]


def _last(text: bytes) -> bytes:
    return text if len(text) <= LAST_BYTES else text[len(text) - LAST_BYTES - 1 :].partition(b"\n")[2]


def _segments(directory: Path) -> list[tuple[int, Path]]:
    matches = ((_SEGMENT.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # Unlinked by the writer since it was listed: the oldest part of the tail.
        return b""


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
