"""What a person may tell a run through the debug socket. Each order is an event of the run, with who gave it.

Owns which orders are taken when; what they do is stream.py's, pool.py's and services.py's. An order that cannot be
followed is refused with a sentence and changes nothing.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from actors.messages import LogLevel
from batchpod.gpus.slots import Phase
from batchpod.gpus.standby import STANDBY
from supervisor.debug.protocol import Kind, Refused
from supervisor.debug.server import Caller, Command
from supervisor.debug.views import SUPERVISOR, actor_named, page_named
from supervisor.lifecycle import Life

if TYPE_CHECKING:
    from batchpod.run import Run

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
Order = Callable[["Run", Mapping[str, Any], str], str]
"""Carries one order out for a person (`uid 1000`); what it has done, in a sentence."""


def orders(run: Run) -> dict[str, Command]:
    """The acting commands of the debug socket."""
    return {name: _command(run, order) for name, order in ORDERS.items()}


def _command(run: Run, order: Order) -> Command:
    def command(arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        if run.ending:
            raise Refused(Kind.USAGE, f"the run is ending in stage {run.reporter.stage}: nothing can be changed")
        done = order(run, arguments, f"uid {caller.uid}")
        run.loop.events.note("command", f"{caller} has asked: {done}")
        return {"done": done}

    return command


def restart(run: Run, arguments: Mapping[str, Any], who: str) -> str:
    name, now = _actor(run, arguments), arguments.get("now") is True
    why = f"{who} asks for a restart"
    how = "at once" if now else "once what it has in hand is done"
    if name == STANDBY and run.gpus.standby is not None:
        run.loop.kill(run.gpus.standby, why)
        return "standby is restarted at once"
    for service in (run.fetcher, run.uploader):
        if service.name == name:
            if service.child is None or service.child.life is not Life.RUNNING:
                raise Refused(Kind.NOT_RUNNING, f"{name} is not running, or is being ended already")
            service.restart(why, now=now)
            return f"{name} is restarted {how}"
    slot = next((slot for slot in run.gpus.slots if slot.name == name), None)
    if slot is None or run.gpus.closing:
        raise Refused(Kind.NOT_RUNNING, f"{name} has no more work, or has just ended")
    if slot.child is None or slot.phase in (Phase.RETIRED, Phase.ENDING):
        raise Refused(Kind.NOT_RUNNING, f"{name} is not running, or is being ended already ({slot.phase})")
    if slot.phase not in (Phase.READY, Phase.DRAINING):
        how = f"at once (it was {slot.phase})"
    run.gpus.recycle(slot, why, now=now)
    return f"{name} is restarted {how}"


def pause(run: Run, arguments: Mapping[str, Any], who: str) -> str:
    run.stream.paused = True
    return "paused: no page is handed to the GPU until `resume`, all else goes on"


def resume(run: Run, arguments: Mapping[str, Any], who: str) -> str:
    run.stream.paused = False
    return "resumed: pages are handed to the GPU"


def retry(run: Run, arguments: Mapping[str, Any], who: str) -> str:
    number = _page(run, arguments)
    if run.stream.origin_down:
        text = "the image server is down and nothing more is asked of it in this run: the next attempt gets the page"
        raise Refused(Kind.USAGE, text)
    return _commanded(run, number, "retry", who)


def fail(run: Run, arguments: Mapping[str, Any], who: str) -> str:
    return _commanded(run, _page(run, arguments), "fail", who)


def loglevel(run: Run, arguments: Mapping[str, Any], who: str) -> str:
    level = str(arguments.get("level", "")).upper()
    if level not in LEVELS:
        raise Refused(Kind.USAGE, f"there is no log level {level[:20]!r}; there are {', '.join(LEVELS)}")
    name = _actor(run, arguments, SUPERVISOR)
    if name == SUPERVISOR:
        for own in ("batchpod", "actors", "supervisor"):
            logging.getLogger(own).setLevel(level)
        return f"the supervising process logs at {level}"
    child = next((child for child in run.loop.children if child.name == name), None)
    if child is None:
        raise Refused(Kind.NOT_RUNNING, f"{name} has no process now")
    if child.outgoing.depth:
        raise Refused(Kind.NOT_RUNNING, f"{name} takes no messages now: what it was sent before still waits")
    child.outgoing.put(LogLevel(level))
    return f"{name} logs at {level} until it is restarted"


def stop(run: Run, arguments: Mapping[str, Any], who: str) -> str:
    run.stopped_by = run.stopped_by or signal.SIGTERM
    return "stopped: the run ends as after a SIGTERM, with exit code 143"


ORDERS: dict[str, Order] = {
    "restart": restart,
    "pause": pause,
    "resume": resume,
    "retry": retry,
    "fail": fail,
    "loglevel": loglevel,
    "stop": stop,
}


def _actor(run: Run, arguments: Mapping[str, Any], *more: str) -> str:
    return actor_named(str(arguments.get("actor", "")), run.inspection.actors(), *more)


def _page(run: Run, arguments: Mapping[str, Any]) -> int:
    number = int(page_named(str(arguments.get("page", ""))))
    if run.reporter.stage not in ("load", "stream"):
        raise Refused(Kind.USAGE, f"no page is on its way in stage {run.reporter.stage}")
    if number not in run.stream.ledger.pages:
        raise Refused(Kind.USAGE, f"there is no page {number:04d}; the volume has {len(run.stream.ledger)} pages")
    return number


def _commanded(run: Run, number: int, action: str, who: str) -> str:
    try:
        return run.stream.commanded(number, action, who)
    except ValueError as e:
        raise Refused(Kind.USAGE, str(e)) from e
