"""Everything that any process of the run prints, at file-descriptor level, as whole lines in arrival order.

Each source (a child, or the supervising process itself) writes to a pipe of its own; whole lines go to the container's
own stdout, which may be stuck and must not hold the loop, and to a recorder. A killed child can therefore leave
neither a lock behind nor half a line inside another's. Once the last line is said nobody is heard any more, so that
readers can match on it.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable

TAIL_LINES = 400
LONGEST_LINE = 65536
BACKLOG_BYTES = 1 << 20
ERASE = b"\r\x1b[K"
PIPE_CHUNK = 4096
"""A pipe that polls as writable takes PIPE_BUF bytes without blocking, so a shared terminal or pipe need not be made
non-blocking (that would leak to whoever shares it)."""


class Source:
    """One process's output: the reading end of its pipe, and its last lines."""

    def __init__(self, name: str, fd: int) -> None:
        self.name, self.fd = name, fd
        os.set_blocking(fd, False)
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.seen = 0
        """Lines so far, those that left the tail included."""
        self._partial = b""

    def read(self) -> tuple[bytes, bool]:
        """Whole lines that have come, and whether more can come (false at end of file)."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return b"", True
        except OSError:
            data = b""
        if not data:
            return self.rest(), False
        whole, newline, self._partial = (self._partial + data).rpartition(b"\n")
        lines = whole + newline
        if len(self._partial) > LONGEST_LINE:
            lines, self._partial = lines + self._partial + b"\n", b""
        self._remember(lines)
        return lines, True

    def rest(self) -> bytes:
        """What was left without a newline, as a line."""
        rest, self._partial = self._partial, b""
        lines = rest + b"\n" if rest else b""
        self._remember(lines)
        return lines

    def _remember(self, lines: bytes) -> None:
        new = lines.decode("utf-8", "replace").splitlines()
        self.tail.extend(new)
        self.seen += len(new)


class Stdout:
    """The container's stdout. Never blocks: what it cannot take waits up to 1 MiB, then is dropped and counted."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.dropped_bytes = 0
        self._waiting = bytearray()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._broken = False

    def write(self, data: bytes) -> None:
        if len(self._waiting) + len(data) > BACKLOG_BYTES:
            self.dropped_bytes += len(data)
            return
        self._waiting += data
        self.flush()

    def flush(self) -> None:
        """Write what can be written now."""
        while self._waiting and not self._broken and self._writable():
            try:
                written = os.write(self.fd, self._waiting[:PIPE_CHUNK])
            except BlockingIOError:
                return
            except OSError:
                self._broken = True
                self.dropped_bytes += len(self._waiting)
                self._waiting.clear()
                return
            del self._waiting[:written]

    @property
    def pending(self) -> bool:
        return bool(self._waiting)

    def _writable(self) -> bool:
        return any(flags & (select.POLLOUT | select.POLLERR) for _, flags in self._poll.poll(0))


class Output:
    """Collects every source. `record` gets each batch of whole lines (bytes); it must not block."""

    def __init__(self, stdout: Stdout, record: Callable[[bytes], None]) -> None:
        self.stdout, self._record = stdout, record
        self.own = deque[str](maxlen=TAIL_LINES)
        self.own_seen = 0
        self._live = self._said_last = False

    def say_last(self, line: str) -> None:
        """The last line of all: what comes afterwards, whoever it is from, is dropped."""
        self.say(line)
        self._said_last = True

    def say(self, line: str) -> None:
        """One line of the supervising process's own."""
        self.own.append(line)
        self.own_seen += 1
        self.emit(line.encode("utf-8", "backslashreplace") + b"\n")

    def live(self, text: str) -> None:
        """Replace the live line of a terminal (not recorded); the next real line takes its place."""
        if not self.stdout.pending and not self._said_last:
            self.stdout.write(text.encode("utf-8", "backslashreplace"))
            self._live = True

    def emit(self, lines: bytes) -> None:
        """Whole lines of anybody's."""
        if lines and not self._said_last:
            self.stdout.write(ERASE + lines if self._live else lines)
            self._live = False
            self._record(lines)

    def drain(self, source: Source, most_bytes: int = 1 << 20) -> bool:
        """Take what `source` holds now; false once it has ended. At most `most_bytes` a call, so that a child that
        prints without end cannot hold the loop."""
        taken = 0
        while taken < most_bytes:
            lines, more = source.read()
            self.emit(lines)
            taken += len(lines)
            if not more:
                return False
            if not lines:
                break
        return True
