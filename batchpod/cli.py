"""The command line: which command runs what, and how it ends before a run has begun.

Imports next to nothing, so that `--help` and a wrong word answer at once; each command imports its own part.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from batchpod import __version__
from batchpod.errors import Cause, Stopped
from batchpod.settings import environment
from batchpod.settings.environment import Command
from supervisor.lifecycle import STOP_SIGNALS

STOPPED = 143
_CODES = "exit codes: 0 fine, 13 permanent (do not try again), 1 transient (try again), 143 stopped, 2 usage"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A usage error, `--help` and `--version` leave by SystemExit."""
    _open_standard_streams()
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return int(command(arguments))
    except KeyboardInterrupt:  # By hand: whoever pressed the keys needs no traceback.
        return STOPPED


def _open_standard_streams() -> None:
    """A descriptor 0, 1 or 2 that whoever started this has closed would be given to the next file that is opened."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, mode, closefd=False))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="batchpod",
        description="Transcribes one volume of page images with htrflow, in one pod.",
        epilog=_CODES,
    )
    parser.add_argument("--version", action=_Versions)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")

    def add(command: Command, run: Callable[[argparse.Namespace], int], does: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            command,
            help=does,
            description=f"{does[0].upper()}{does[1:]}.",
            epilog=f"{environment.help_text(command)}\n\n{_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(run=run)
        return added

    add(Command.RUN, _run, "process one volume, described by the environment")
    add(Command.WARMUP, _warmup, "fill the model cache for one pipeline")
    add(Command.WAIT_WARMUP, _wait_warmup, "wait until a warm-up has filled the model cache")
    pages = add(Command.PAGES, _pages, "print the pages that a manifest gives: name TAB image URL")
    pages.add_argument("source", metavar="SOURCE", help="a manifest: a file, or an http(s) URL")
    pages.add_argument("--credentials", action="store_true", help="leave the credentials in the image URLs")
    check = add(Command.CHECK, _check, "say everything that is wrong with the environment and the pipeline file")
    check.add_argument("--online", action="store_true", help="also ask the manifest's server and the results bucket")
    return parser


class _Versions(argparse.Action):
    """Reads the installed packages' versions only when asked, and without importing the packages."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print batchpod's, htrflow's and torch's versions")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        print(f"batchpod {__version__}")
        for package in ("htrflow", "torch"):
            try:
                print(f"{package} {version(package)}")
            except PackageNotFoundError:
                print(f"{package} is not installed")
        parser.exit()


def _run(_: argparse.Namespace) -> int:
    def run() -> int:
        from batchpod.settings.config import Config

        config = Config.from_env(os.environ)
        from batchpod.run import run

        return run(config)

    return _stoppable("config", run)


def _warmup(_: argparse.Namespace) -> int:
    def run() -> int:
        from batchpod.commands import warmup

        return warmup.run(os.environ)

    return _stoppable("warmup", run)


def _stoppable(stage: str, command: Callable[[], int]) -> int:
    """Until `command` installs its own signal handling (its imports take a while), a signal ends it in `stage`."""

    def stop(_number: int, _frame: object) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise Stopped(stage)

    try:
        for number in STOP_SIGNALS:
            signal.signal(number, stop)
        # Ignored, as a parent may leave it, the system would bury the children itself and keep how they ended.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return command()
    except Exception as e:
        return _ended(e, stage)


def _ended(error: Exception, stage: str) -> int:
    """Leave the termination message first, then the line for people."""
    from batchpod import advice
    from batchpod.reporting import termination
    from batchpod.verdict import verdict_of

    verdict = verdict_of(error, stage)
    path = environment.BY_NAME["TERMINATION_LOG_PATH"]
    termination.write(os.environ.get(path.name) or path.default or "", verdict)
    if verdict.cause is Cause.UNEXPECTED:
        traceback.print_exception(error)
    print(advice.failure(verdict), file=sys.stderr)
    return verdict.code


def _wait_warmup(_: argparse.Namespace) -> int:
    from batchpod.commands import wait_warmup

    return wait_warmup.run(os.environ)


def _pages(arguments: argparse.Namespace) -> int:
    from batchpod.commands import pages

    return pages.run(arguments.source, os.environ, credentials=arguments.credentials)


def _check(arguments: argparse.Namespace) -> int:
    from batchpod.commands import check

    return check.run(os.environ, online=arguments.online)
