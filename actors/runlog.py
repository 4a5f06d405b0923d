"""The run log on disk: everything that every process wrote, bounded, and the redacted copy that is shipped.

The supervising process writes (`RunLog`), the uploader reads (`ShippedCopy`, `fingerprint`); neither waits for the
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
SLACK_BYTES = 64 * 1024
"""A file ends with a line, and may be this much larger for it; a line that is longer is cut."""
WHOLE_BYTES = 4 * MIB
"""A shipped copy up to this size is whole (batchpod/README.md, section 6)."""
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
        self._room, self._segment, self._due = HEAD_BYTES, -1, False
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
        while data:
            try:
                if self._due:
                    self._rotate()
                written = self._file.write(data[: self._share(data)]) or 0
            except OSError:
                self.lost_bytes += len(data)
                return
            self._room -= written
            self._due = self._room <= 0 and (data[written - 1 : written] == b"\n" or self._room <= -SLACK_BYTES)
            data = data[written:]

    def _share(self, data: bytes) -> int:
        """How much of `data` goes to the present file: what it has room for, to the end of the line."""
        if len(data) <= self._room:
            return len(data)
        most = self._room + SLACK_BYTES
        end = data.find(b"\n", max(self._room - 1, 0), most)
        return end + 1 if end >= 0 else most

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        following = (self._directory / f"tail.{self._segment + 1}").open("wb", buffering=0)
        self._file.close()
        self._file, self._room, self._due = following, SEGMENT_BYTES, False
        self._segment += 1
        (self._directory / f"tail.{self._segment - FULL_SEGMENTS - 1}").unlink(missing_ok=True)


def fingerprint(directory: str | Path) -> tuple[int, int]:
    """Changes whenever something was appended: the newest segment's number and its size in bytes."""
    head, segments = Path(directory) / "head", _segments(Path(directory))
    newest = segments[-1][1] if segments else head
    return (segments[-1][0] if segments else -1, _size(newest))


class ShippedCopy:
    """What is shipped of the log in `directory`. Files that the writer is done with are redacted once and kept."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._kept: dict[int, bytes] = {}

    def take(self) -> bytes:
        """The log so far, redacted; over 4 MiB its first 1 MiB, a marker line and its last 2 MiB, cut at line ends.

        A log that is being written meanwhile is read up to some moment of that time.
        """
        files = [(-1, self._directory / "head"), *_segments(self._directory)]
        newest = files[-1][0]
        self._kept = {number: text for number, text in self._kept.items() if any(number == n for n, _ in files)}
        parts = [self._part(number, path, number != newest) for number, path in files]
        head, tail = parts[0], b"".join(parts[1:])
        gap = len(files) > 1 and files[1][0] > 0
        if not gap and len(head) + len(tail) <= WHOLE_BYTES:
            return head + tail
        return _first(head) + MARKER + _last(tail)

    def _part(self, number: int, path: Path, ended: bool) -> bytes:
        if number in self._kept:
            return self._kept[number]
        text = _redacted(_read(path))
        if ended and text:
            self._kept[number] = text
        return text


def _redacted(data: bytes) -> bytes:
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    return "".join(for_log(line) if "/" in line or "=" in line else line for line in lines).encode()


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
