"""The supervising process's own output: captured at descriptor level like every child's, said as plain lines."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator

from actors.redact import for_log
from actors.runlog import RunLog
from supervisor.output import Output, Source, Stdout


@contextlib.contextmanager
def captured(runlog: RunLog) -> Iterator[tuple[Output, Source, bool]]:
    """Descriptors 1 and 2 lead into a pipe while this lasts; what comes out of it goes where every process's output
    goes. Gives the output, that pipe as a source, and whether the real stdout is a terminal."""
    real = [os.dup(1), os.dup(2)]
    read, write = os.pipe()
    os.set_blocking(write, False)
    sys.stdout.flush()
    sys.stderr.flush()
    terminal = os.isatty(real[0])
    output = Output(Stdout(real[0]), runlog.append)
    source = Source("supervisor", read)
    for fd in (1, 2):
        os.dup2(write, fd)
    os.close(write)
    try:
        yield output, source, terminal
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        output.drain(source)
        output.emit(source.rest())
        output.stdout.flush()
        for fd, saved in ((1, real[0]), (2, real[1])):
            os.dup2(saved, fd)
            os.close(saved)
        os.close(read)


@contextlib.contextmanager
def logging_to(say: Callable[[str], None], count_error: Callable[[], None]) -> Iterator[None]:
    """Records of the project's own loggers in this process become lines; errors are counted."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR:
                count_error()
            error = record.exc_info[1] if record.exc_info else None
            why = f": {type(error).__name__}: {error}" if error is not None else ""
            say(f"{record.levelname} {for_log(record.getMessage() + why)}")
            for line in "".join(traceback.format_exception(error)).splitlines() if error is not None else ():
                say(for_log(line))

    handler = Lines()
    loggers = [logging.getLogger(name) for name in ("batchpod", "actors", "supervisor")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
