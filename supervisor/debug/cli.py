"""`batchpod-debug`: which command asks what, how its answer is printed, and the exit code.

Imports next to nothing until it knows the command: `ping` runs every few seconds as a probe, and needs neither tables
nor screens.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from supervisor.debug.client import Reply
    from supervisor.debug.views import Dumped

TIMEOUT_S = 2.0
LOOP_AGE_S = 60.0
_CODES = "exit codes: 0 fine, 2 usage, 3 something is not running, 4 unreachable"
READING = frozenset(
    "status watch show pages page arena queues stack events tail exits config dump".split()  # noqa: SIM905
)
FOLLOWED = frozenset({"events", "tail"})


class Code(IntEnum):
    OK = 0
    USAGE = 2
    NOT_RUNNING = 3
    UNREACHABLE = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    asked = _parser().parse_args(argv)
    try:
        return int(_ping(asked) if asked.command == "ping" else _answer(asked))
    except BrokenPipeError:
        # Whoever read the output has seen enough (`| head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Code.OK
    except KeyboardInterrupt:
        return Code.OK


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
        if name in READING:
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
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _count(text: str) -> int:
    if not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of lines")
    return int(text)


def _arguments(asked: argparse.Namespace) -> dict[str, Any]:
    names = ("actor", "page", "state", "older", "lines", "level", "now")
    given = {name: getattr(asked, name, None) for name in names}
    return {name: value for name, value in given.items() if value is not None}


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
    data: Any = reply.data
    if asked.command == "dump":
        return _write_dump(asked, data)
    if asked.json:
        import orjson

        print(orjson.dumps({"age_s": reply.age_s, **data}).decode())
        return _judged(asked, data)
    from supervisor.debug import render, screen

    console = render.console()
    if asked.command == "watch":
        for line in screen.draw(data, reply.age_s, console.width):
            console.print(line, no_wrap=True, crop=False, overflow="ignore")
        console.print(render.aged(reply.age_s))
    elif asked.command in render.RENDERERS:
        console.print(render.rendered(asked.command, data, reply.age_s, console.width))
    else:
        print(data["done"])
    return _judged(asked, data)


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
    import time

    import orjson

    from supervisor.debug.client import Reply
    from supervisor.debug.protocol import Kind, Refused
    from supervisor.debug.views import READINGS, Dumped, actor_named

    if getattr(asked, "follow", False):
        return _problem(asked, "a dump does not go on: -f and --from exclude each other", Code.USAGE)
    try:
        with open(asked.file, "rb") as f:
            read = orjson.loads(f.read())
        dumped = Dumped(read)
    except OSError as e:
        return _problem(asked, f"{asked.file} cannot be read: {e.strerror or e}", Code.USAGE)
    except ValueError as e:
        return _problem(asked, f"{asked.file}: {e}", Code.USAGE)
    arguments = _arguments(asked)
    if asked.command == "dump":
        return _write_dump(asked, read)
    if asked.command == "stack":
        name = actor_named(arguments["actor"], dumped.actors())
        data = dumped.stack(name)
        if data is None:
            raise Refused(Kind.NOT_RUNNING, f"this dump holds no stacks of {name}")
    else:
        data = READINGS[asked.command](dumped, arguments)
    asked.once = True
    return _print(asked, Reply(data, max(0.0, time.time() - _taken_at(dumped))))


def _taken_at(dumped: Dumped) -> float:
    return float(dumped.run()["at"])


def _problem(asked: argparse.Namespace, text: str, code: Code) -> int:
    if asked.json:
        import orjson

        print(orjson.dumps({"error": text, "exit": int(code)}).decode())
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
