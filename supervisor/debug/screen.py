"""The watch screen as lines of text: the run, the actors, the last events. Pure; a terminal's width goes in.

What does not fit goes from the right: whole columns of the table, whole parts of the other lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from supervisor.debug import wording

Json = dict[str, Any]
STALE_S = 2.0
YELLOW, RED = 0.5, 0.8
"""Shares of its limit from which a duration is coloured."""
KEYS = ("j/k move", "enter show", "s stack", "e events", "p pages", "a arena", "R restart", "f freeze")
ALWAYS = ("? help", "q quit")


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    cell: Callable[[Json, float], str]
    right: bool = True
    most: int = 40
    least: int = 0


def _page(row: Json) -> str:
    pages = row["pages"]
    return "" if not pages else pages[0] if len(pages) == 1 else f"{pages[0]} +{len(pages) - 1}"


def _last_exit(row: Json, now: float) -> str:
    if not row["last_exit_at"]:
        return ""
    return f"{wording.ago(row['last_exit_at'], now)}: {row['last_exit']}"


COLUMNS = (
    Column("ACTOR", lambda row, now: row["actor"], right=False, least=9),
    Column("INC", lambda row, now: wording.number(row["incarnation"])),
    Column("PID", lambda row, now: str(row["pid"] or "")),
    Column("STATE", lambda row, now: row["state"], right=False, least=9),
    Column("UP", lambda row, now: wording.clock(row["up_s"]), least=5),
    Column("DOING", lambda row, now: row["doing"], right=False, most=26, least=20),
    Column("FOR", lambda row, now: wording.lasted(row["for_s"]), least=4),
    Column("LIMIT", lambda row, now: wording.lasted(row["limit_s"])),
    Column("BEAT", lambda row, now: wording.lasted(row["beat_s"]), least=4),
    Column("PAGE", lambda row, now: _page(row), right=False, least=7),
    Column("DONE", lambda row, now: wording.number(row["done"])),
    Column("FAIL", lambda row, now: wording.number(row["failed"])),
    Column("RST", lambda row, now: wording.number(row["restarts"])),
    Column("RSS", lambda row, now: wording.size(row["rss_bytes"]), least=7),
    Column("CPU", lambda row, now: wording.number(row["cpu_percent"])),
    Column("LAST EXIT", lambda row, now: _last_exit(row, now), right=False, most=200, least=12),
)
GAP = 2


def draw(data: Json, age_s: float, width: int, selected: str = "") -> list[Text]:
    """The screen above its line of keys; `selected` names the actor whose row is marked."""
    run = data["run"]
    lines = [*header(run, width), *table(data["actors"], run["at"], width, selected), events(data["events"], width)]
    if run["paused"] or run["failure"]:
        lines.append(_clipped(run["sentence"], width, "bold red"))
    if age_s > STALE_S:
        text = f"this snapshot is {wording.age(age_s)}: the supervisor's loop does not publish, or has ended"
        lines.append(_clipped(text, width, "bold red"))
    return lines


def header(run: Json, width: int) -> list[Text]:
    """The two lines about the run as a whole; each goes on below where it is too narrow for it."""
    counts = run["counts"]
    first = [f"{run['volume']}  {run['stage']}  {wording.long_clock(run['elapsed_s'])}"]
    if run["total"]:
        first.append(f"{run['done']}/{run['total']} pages")
    first += [f"{run[what]} {what}" for what in ("failed", "deferred") if run[what]]
    if run["pages_per_second"]:
        first.append(f"{run['pages_per_second']:.2g} pages/s")
    if run["left_s"] is not None:
        first.append(f"left {wording.long_clock(run['left_s'])}")
    first += [f"stall {run['stall_percent']} %", f"loop {run['slowest_turn_s'] * 1000:.0f} ms"]
    fetched = counts["fetched"] + counts["decoding"]
    second = [
        f"fetched {fetched}/{run['lookahead_pages']} ({wording.size(run['fetched_bytes'])})",
        f"ready {counts['ready']} ({wording.size(run['ready_bytes'])})",
        f"transcribing {counts['transcribing']}",
        f"to upload {counts['exported'] + counts['uploading']}",
        f"arena {wording.share(run['arena_used_bytes'], run['arena_bytes'])}",
    ]
    if run["memory_limit_bytes"]:
        second.append(f"pod memory {wording.share(run['memory_used_bytes'], run['memory_limit_bytes'])}")
    return [Text(line) for parts in (first, second) for line in _filled(parts, width)]


def _filled(parts: list[str], width: int) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(part[:width])
    return lines


def table(rows: list[Json], now: float, width: int, selected: str = "") -> list[Text]:
    """A line of titles and one an actor."""
    shown: list[tuple[Column, int]] = []
    left = width
    for column in COLUMNS:
        longest = max((len(column.cell(row, now)) for row in rows), default=0)
        wide = max(len(column.title), column.least, min(longest, column.most))
        if wide > left and left >= max(len(column.title), column.least):
            wide = left
        if wide > left:
            break
        shown.append((column, wide))
        left -= wide + GAP
    lines = [Text((" " * GAP).join(_fit(c.title, wide, c.right) for c, wide in shown).rstrip(), style="bold")]
    for row in rows:
        line = Text()
        for column, wide in shown:
            cell = _fit(column.cell(row, now), wide, column.right)
            line.append(cell, style=_style(column, row))
            line.append(" " * GAP)
        line.rstrip()
        if row["actor"] == selected:
            line.pad_right(max(0, width - len(line)))
            line.stylize("reverse")
        lines.append(line)
    return lines


def _fit(text: str, wide: int, right: bool) -> str:
    text = text.replace("\n", " ")
    if len(text) > wide:
        text = text[: max(0, wide - 1)] + "…"
    return text.rjust(wide) if right else text.ljust(wide)


def _style(column: Column, row: Json) -> str:
    if column.title == "STATE" and not row["ok"]:
        return "bold red"
    return urgency(row["for_s"], row["limit_s"]) if column.title == "FOR" else ""


def urgency(for_s: float | None, limit_s: float | None) -> str:
    """The colour of a duration that has a limit: yellow from half of it, red from four fifths."""
    if for_s is None or not limit_s:
        return ""
    return "bold red" if for_s >= RED * limit_s else "yellow" if for_s >= YELLOW * limit_s else ""


def events(found: list[Json], width: int) -> Text:
    """The last events on one line, as many as there is room for; the newest is the last."""
    line = ""
    for event in reversed(found):
        text = event_text(event).replace("\n", " ")
        longer = f"{text}   {line}" if line else text
        if len(longer) > width:
            line = line or text[: max(0, width - 1)] + "…"
            break
        line = longer
    return Text(line, style="dim")


def event_text(event: Json) -> str:
    number = f"#{event['incarnation']}" if event["incarnation"] else ""
    who = f"{event['actor']}{number} " if event["actor"] else ""
    return f"{wording.of_day(event['at'])} {who}{event['text']}"


def keys(width: int) -> Text:
    """The line of keys; help and the way out are always on it."""
    shown = list(KEYS)
    while shown and len(_joined(shown)) > width:
        shown.pop()
    return Text(_joined(shown))


def _joined(shown: list[str]) -> str:
    return " " + "   ".join([*shown, *ALWAYS])


def _clipped(text: str, width: int, style: str) -> Text:
    return Text(_fit(text, width, right=False), style=style)
