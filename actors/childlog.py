"""Logging inside an actor: plain lines on stderr, which the supervisor captures as the run log.

Owns the format, the redaction of what the project's own loggers write, and the count of errors; does not own where
the lines go. One `write` a line and no lock between processes, so a process killed at any moment silences nobody.
"""

from __future__ import annotations

import contextlib
import logging
import os

from actors.messages import ErrorLogged
from actors.redact import for_log
from supervisor.queues import Channel

OWN = ("actors", "batchpod", "supervisor")
"""The project's own loggers; libraries are heard from WARNING on."""


class LineHandler(logging.Handler):
    """Writes `<LEVEL> <logger> message`, one write a record, to the descriptor `fd`; counts errors on `channel`."""

    def __init__(self, channel: Channel | None, fd: int = 2) -> None:
        super().__init__()
        self._channel, self._fd = channel, fd

    def format(self, record: logging.LogRecord) -> str:
        """The record's line(s), redacted, without a line end."""
        text = f"{record.levelname} {_short(record.name)} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + (record.exc_text or logging.Formatter().formatException(record.exc_info))
        return for_log(text)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
            return
        with contextlib.suppress(OSError):  # A log that nobody reads any more must not fail the work.
            os.write(self._fd, line.encode("utf-8", "backslashreplace"))
            if self._channel and record.levelno >= logging.ERROR and record.name.split(".")[0] in OWN:
                self._channel.send(ErrorLogged())


def setup(name: str, level: str, channel: Channel | None) -> None:
    """Send this process's log records to stderr; `name` is the actor's, `level` that of the project's own loggers.

    ERROR records of those loggers are also told to the supervisor (`ErrorLogged`), one message each.
    """
    root = logging.getLogger()
    root.handlers[:] = [LineHandler(channel)]
    root.setLevel(logging.WARNING)
    set_level(level)
    logging.getLogger(f"actors.{name}").debug("logging at level %s", level)


def set_level(level: str) -> None:
    """Set the level (`DEBUG`, `INFO`, …) of the project's own loggers; an unknown one is logged and left alone."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        logging.getLogger("actors").warning("no such log level: %s", level)
        return
    for name in OWN:
        logging.getLogger(name).setLevel(number)


def _short(name: str) -> str:
    first, _, rest = name.partition(".")
    return rest if first in OWN and rest else name
