"""After the end of a gpu process that had been working: its pages are told apart, and what it left is removed.

Turns blame.py's decisions into verdicts on pages, with the sentences that say why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from actors.messages import page_name
from batchpod.gpus.blame import Decision
from batchpod.gpus.slots import Slot
from supervisor.events import Events
from supervisor.process import Exit, thread_stack


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the stream is told of the pages: `(page, reason)` failed, to be run alone, to be run again, failed without
    being guilty (and whether there is an actor left to run them again)."""

    failed: Callable[[int, str], None]
    alone: Callable[[Iterable[int], str], None]
    again: Callable[[Iterable[int], str], None]
    cleared: Callable[[Iterable[int], str, bool], None]


def after_hang(
    slot: Slot, exit_: Exit, decision: Decision, pages: Sequence[int], events: Events, say: Verdicts
) -> None:
    """The process was ended because a page made no progress."""
    stack = _stack_of(exit_, decision.guilty)
    reason = slot.hang + (f"; it stood in {stack}" if stack else "")
    _apply(slot, exit_, decision, pages, reason, events, say)


def after_death(
    slot: Slot, exit_: Exit, decision: Decision, pages: Sequence[int], events: Events, say: Verdicts
) -> None:
    """The process died of itself."""
    mark = next((m for m in exit_.tasks if m.task == decision.guilty), None)
    last = f", last in {mark.step} ({mark.detail})" if mark else ""
    if slot.last_failure:
        reason = f"the gpu process ended twice while only this page was in it: {slot.last_failure}{last}"
    else:
        verb = "was " if exit_.signal_name else ""
        reason = f"the gpu process {verb}{exit_.text} twice while only this page was in it{last}"
    _apply(slot, exit_, decision, pages, reason, events, say)


def _apply(
    slot: Slot, exit_: Exit, decision: Decision, pages: Sequence[int], reason: str, events: Events, say: Verdicts
) -> None:
    guilty = decision.guilty
    if guilty is not None and guilty in pages:
        slot.docket.blame(guilty)
        slot.failed += 1
        text = f"page {page_name(guilty)} is to blame: {reason}"
        events.note("blame", text, actor=slot.name, incarnation=exit_.incarnation, task=page_name(guilty))
        say.failed(guilty, reason)
    alone = [p for p in decision.alone if p in pages]
    if alone:
        say.alone(alone, "its gpu process ended while it was in flight; tried again alone")
    left = [p for p in pages if p != guilty and p not in alone]
    if left:
        say.again(left, "its gpu process ended over another page")


def _stack_of(exit_: Exit, page: int | None) -> str:
    mark = next((m for m in exit_.tasks if m.task == page), None)
    return thread_stack(exit_.stacks, mark.thread) if mark else ""


def discard(directory: str, pages: Iterable[int]) -> None:
    """Remove what a dead process left of pages it had not finished."""
    for page in pages:
        for path in Path(directory).glob(f"{page_name(page)}.*"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
