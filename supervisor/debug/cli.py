"""`batchpod-debug`: which command asks what, how its answer is printed, and the exit code.

Imports next to nothing until it knows the command: `ping` runs every few seconds as a probe, and needs neither tables
nor screens.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor.debug.client import Reply

TIMEOUT_S = 2.0
LOOP_AGE_S = 60.0
_CODES = "exit codes: 0 fine, 2 usage, 3 something is not running, 4 unreachable"
ACTING = ("restart", "pause", "resume", "retry", "fail", "loglevel", "stop")


class Code(IntEnum):
    OK = 0
    USAGE = 2
    NOT_RUNNING = 3
    UNREACHABLE = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    _prepare_output()
    asked = _parser().parse_args(argv)
    try:
        code = _ping(asked) if asked.command == "ping" else _answer(asked)
        sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        return Code.OK
    except OSError as e:
        # What is left in the buffer would fail once more at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(e, BrokenPipeError):
            return Code.OK  # Whoever read the output has seen enough (`| head`).
        print(f"the answer cannot be written to stdout: {e.strerror or e}", file=sys.stderr)
        return Code.USAGE


def _prepare_output() -> None:
    """Whatever stdout and stderr are: closed, or of an encoding that lacks a character, they do not stop an answer."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="batchpod-debug",
        description="Looks into a running pod, and tells it things.",
        epilog=f"The socket is found by --socket, else WORKDIR_PATH, else /work. {_CODES}.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")

    def add(name: str, does: str, *arguments: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.", epilog=_CODES)
        added.add_argument("--json", action="store_true", help="print JSON for scripts")
        added.add_argument("--timeout", type=_seconds, default=TIMEOUT_S, metavar="S", help="wait so long (2 s)")
        added.add_argument("--socket", metavar="PATH", help="the supervisor's socket, or its working directory")
        if name not in ("ping", *ACTING):
            added.add_argument("--from", dest="file", metavar="FILE", help="read a dump in place of a running pod")
        for argument in arguments:
            optional = argument.startswith("[")
            added.add_argument(
                argument.strip("[]").lower(), metavar=argument.strip("[]"), nargs="?" if optional else None
            )
        return added

    def lines(added: argparse.ArgumentParser) -> None:
        added.add_argument("-f", dest="follow", action="store_true", help="go on with what is new")
        added.add_argument("-n", dest="lines", type=_count, metavar="N", help="how many to begin with (20)")

    add("status", "one row an actor, and how the run stands in one sentence", "[ACTOR]")
    add("watch", "the live screen").add_argument("--once", action="store_true", help="print it once, as text")
    add("show", "limits, last transitions and last exits of an actor", "ACTOR")
    pages = add("pages", "the pages on their way")
    pages.add_argument("--state", metavar="S", help="those in this state instead")
    pages.add_argument("--older", type=_seconds, metavar="S", help="only those that are in their state so long")
    add("page", "the whole story of one page", "PAGE")
    add("arena", "the blocks of the pixel arena and who has them")
    add("queues", "the queues between the supervisor and the actors")
    add("stack", "the stacks of an actor, with the page, step and model it is in; works on a hung one", "ACTOR")
    lines(add("events", "what happened: starts, late beats, dumps, kills, exits, requeues, blame"))
    lines(add("tail", "the last lines of an actor's output (supervisor: of its own)", "ACTOR"))
    add("exits", "how processes have ended")
    add("config", "effective settings and where each came from")
    dump = add("dump", "all of it in one JSON for a ticket (every reading command takes it with --from)")
    dump.add_argument("-o", dest="output", metavar="FILE", help="write it there")
    ping = add("ping", "for a liveness probe: exit 0, 3 (its loop does not turn) or 4 (unreachable)")
    ping.add_argument(
        "--max-loop-age", type=_seconds, default=LOOP_AGE_S, metavar="S", help="the loop may be so old (60)"
    )
    restart = add("restart", "restart an actor once what it has in hand is done", "ACTOR")
    restart.add_argument("--now", action="store_true", help="at once: stack dump, then SIGKILL")
    add("pause", "stop handing pages to the GPU; all else goes on")
    add("resume", "hand pages to the GPU again")
    add("retry", "put a page back that is not finished", "PAGE")
    add("fail", "give up a page that is not finished", "PAGE")
    add("loglevel", "set an actor's log level until it is restarted", "ACTOR", "LEVEL")
    add("stop", "end the run as SIGTERM does, with the same exit code")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise argparse.ArgumentTypeError(f"{text} is not a number of lines")
    return int(text)


def _arguments(asked: argparse.Namespace) -> dict[str, Any]:
    names = ("actor", "page", "state", "older", "lines", "level", "now")
    given = {name: getattr(asked, name) for name in names if getattr(asked, name, None) is not None}
    return {name: _text(value) if isinstance(value, str) else value for name, value in given.items()}


def _text(given: str) -> str:
    """What the shell gave as text, where it may be bytes that are none."""
    return given.encode("utf-8", "replace").decode()


# ------------------------------------------------------------------------------------------------------------ answers


def _answer(asked: argparse.Namespace) -> int:
    """Ask, print, judge. What goes wrong is said in one sentence on stderr (on stdout as JSON with --json)."""
    from supervisor.debug.address import NotFound, Several, find
    from supervisor.debug.client import Unreachable
    from supervisor.debug.protocol import Kind, Refused

    try:
        if getattr(asked, "file", None):
            return _from_file(asked)
        return _live(asked, find(asked.socket, os.environ))
    except (NotFound, Unreachable) as e:
        return _problem(asked, str(e), Code.USAGE if isinstance(e, Several) else Code.UNREACHABLE)
    except Refused as e:
        codes = {Kind.NOT_RUNNING: Code.NOT_RUNNING, Kind.BUSY: Code.UNREACHABLE, Kind.INTERNAL: Code.UNREACHABLE}
        return _problem(asked, str(e), codes.get(e.kind, Code.USAGE))


def _live(asked: argparse.Namespace, path: Path) -> int:
    from supervisor.debug.client import ask, follow

    if asked.command == "watch" and not (asked.once or asked.json):
        return _watch(asked, path)
    arguments = _arguments(asked)
    streaming = asked.command == "watch" and not asked.once
    if streaming or getattr(asked, "follow", False):
        for reply in follow(path, asked.command, arguments, asked.timeout):
            _print(asked, reply)
            sys.stdout.flush()
        return Code.OK
    return _print(asked, ask(path, asked.command, arguments, asked.timeout))


def _watch(asked: argparse.Namespace, path: Path) -> int:
    from supervisor.debug.client import ask
    from supervisor.debug.watch import Feed, Watch

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _problem(asked, "watch needs a terminal (kubectl exec -it); --once prints it as text", Code.USAGE)
    ask(path, "ping", {}, asked.timeout)
    Watch(Feed(path, asked.timeout)).run()
    return Code.OK


def _print(asked: argparse.Namespace, reply: Reply) -> int:
    if asked.command == "dump":
        return _write_dump(asked, reply.data)
    sys.stdout.write(_shown(asked, reply))
    return _judged(asked, reply.data)


def _shown(asked: argparse.Namespace, reply: Reply) -> str:
    """What is printed for an answer."""
    if asked.json:
        import orjson

        return orjson.dumps({"age_s": reply.age_s, **reply.data}).decode() + "\n"
    from supervisor.debug import render

    unsaid = asked.command in ACTING or getattr(asked, "follow", False)
    age_s = None if unsaid else reply.age_s
    return render.printed(asked.command, reply.data, age_s)


def _judged(asked: argparse.Namespace, data: Any) -> int:
    """`status` says by its exit code whether everything runs that should."""
    if asked.command == "status" and not all(row["ok"] for row in data["actors"]):
        return Code.NOT_RUNNING
    return Code.OK


def _write_dump(asked: argparse.Namespace, data: Any) -> int:
    import orjson

    text = orjson.dumps(data)
    if not asked.output:
        sys.stdout.buffer.write(text + b"\n")
        return Code.OK
    try:
        with open(asked.output, "wb") as f:
            f.write(text)
    except OSError as e:
        return _problem(asked, f"{asked.output} cannot be written: {e.strerror or e}", Code.USAGE)
    print(f"{asked.output}: {len(text)} bytes; read it with --from {asked.output}", file=sys.stderr)
    return Code.OK


def _from_file(asked: argparse.Namespace) -> int:
    from supervisor.debug import dumps

    if getattr(asked, "follow", False):
        return _problem(asked, "a dump does not go on: -f and --from exclude each other", Code.USAGE)
    try:
        dumped = dumps.read(asked.file)
    except dumps.Unreadable as e:
        return _problem(asked, str(e), Code.USAGE)
    if asked.command == "dump":
        return _write_dump(asked, dumped.whole)
    try:
        reply = dumps.answer(dumped, asked.command, _arguments(asked))
        text, code = _shown(asked, reply), _judged(asked, reply.data)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as e:
        # A file that somebody has edited, or an older version's: anything in it may be amiss, a time of day included.
        text = f"{asked.file} is damaged, or was written by another version: {type(e).__name__}: {e}"
        return _problem(asked, text, Code.USAGE)
    sys.stdout.write(text)
    return code


def _problem(asked: argparse.Namespace, text: str, code: Code) -> int:
    if asked.json:
        import orjson

        print(orjson.dumps({"error": _text(text), "exit": int(code)}).decode())
    else:
        print(text, file=sys.stderr)
    return code


# --------------------------------------------------------------------------------------------------------------- ping


def _ping(asked: argparse.Namespace) -> int:
    """Whether the supervisor lives. A loop that is held up does not answer: then the socket's time stamp tells how long
    ago it last turned, and a short pause (a starved node) is no reason to end the pod."""
    from supervisor.debug.address import NotFound, find
    from supervisor.debug.client import Silent, Unreachable, ask, loop_age_s
    from supervisor.debug.protocol import Refused

    try:
        path = find(asked.socket, os.environ)
        age_s: float | None
        try:
            ask(path, "ping", {}, asked.timeout)
            age_s, said = 0.0, "the supervisor answers"
        except Refused as e:
            age_s, said = 0.0, f"the supervisor answers: {e}"
        except Silent as e:
            age_s, said = loop_age_s(path), str(e)
            if age_s is None:
                raise
    except (NotFound, Unreachable) as e:
        return _problem(asked, str(e), Code.UNREACHABLE)
    if age_s > asked.max_loop_age:
        text = f"the supervisor's loop has not turned for {age_s:.0f} s (at most {asked.max_loop_age:g} s): {said}"
        return _problem(asked, text, Code.NOT_RUNNING)
    if asked.json:
        import orjson

        print(orjson.dumps({"age_s": round(age_s, 3), "said": said}).decode())
    else:
        print(f"{said}; its loop turned {age_s:.1f} s ago")
    return Code.OK
