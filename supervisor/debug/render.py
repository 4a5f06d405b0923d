"""What each reading command prints for people. The data are those of `--json`; nothing is asked here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from supervisor.debug import screen, wording

Json = dict[str, Any]
PLAIN_WIDTH = 160
"""Columns where the output is no terminal, as under `kubectl exec` without -t."""
LINES = ("watch", "events", "tail", "stack")
"""Commands whose lines are left whole, for `grep`; the others print tables, whose long cells go on below."""


def printed(command: str, data: Json, age_s: float | None) -> str:
    """What `command` prints on this stdout for its data, escape sequences of a terminal included."""
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    console = Console(width=width, highlight=False, emoji=False, markup=False, soft_wrap=command in LINES)
    with console.capture() as captured:
        console.print(rendered(command, data, age_s, console.width))
    return captured.get()


def rendered(command: str, data: Json, age_s: float | None, width: int) -> RenderableType:
    """What `command` shows for its data, and how old the snapshot behind it was (None: not said)."""
    body = RENDERERS.get(command, done)(wording.printable(data), width)
    return body if age_s is None else Group(body, aged(age_s))


def aged(age_s: float) -> Text:
    stale = age_s > screen.STALE_S
    return Text(f"snapshot {wording.age(age_s)}", style="bold red" if stale else "dim")


def status(data: Json, width: int) -> RenderableType:
    run = data["run"]
    sentence = Text(run["sentence"], style="bold")
    return Group(*screen.header(run, width), *screen.table(data["actors"], run["at"], width), sentence)


def watch(data: Json, width: int) -> RenderableType:
    return Group(*screen.draw(data, 0.0, width))


def show(data: Json, width: int) -> RenderableType:
    row = data["actor"]
    facts = _table("", "")
    facts.show_header = False
    for name, value in data["limits"].items():
        _row(facts, f"  {name}", f"{value:g} s" if isinstance(value, float) else str(value))
    now = max((e["at"] for e in data["transitions"]), default=0.0)
    return Group(
        *screen.table([row], row["last_exit_at"] or now, width),
        Text("limits", style="bold"),
        facts,
        Text(f"last {len(data['transitions'])} transitions", style="bold"),
        *(Text(f"  {screen.event_text(event)}") for event in data["transitions"]),
        Text(f"last {len(data['exits'])} exits", style="bold"),
        exits(data, width),
    )


def pages(data: Json, width: int) -> RenderableType:
    table = _table("PAGE", "STATE", "FOR", "BY", "DOING", "QUIET", "SIZE", "REASON")
    for row in data["pages"]:
        size = f"{row['width']}x{row['height']}" if row.get("width") else ""
        quiet = wording.lasted(row.get("quiet_s"))
        since, doing, why = wording.lasted(row["age_s"]), row.get("doing", ""), row.get("reason", "")
        _row(table, row["page"], row["state"], since, row.get("by", ""), doing, quiet, size, why)
    counts = "   ".join(f"{state} {count}" for state, count in data["counts"].items() if count)
    return Group(table, Text(counts or "there are no pages yet"))


def page(data: Json, width: int) -> RenderableType:
    story = _table("AT", "STATE", "LASTED", "BY", "WHY")
    for turn in data["story"]:
        at, by = wording.of_day(turn["at"]), turn["by"]
        _row(story, at, turn["state"], wording.lasted(turn["lasted_s"]), by, turn["why"])
    steps = [(what, data.get(f"{what}_s")) for what in ("fetch", "decode", "transcribe", "upload")]
    parts = [f"{what} {wording.lasted(seconds)}" for what, seconds in steps if seconds is not None]
    if data.get("width"):
        parts.insert(0, f"{data['width']} x {data['height']} pixels")
    if data.get("lines"):
        parts.append(f"{data['lines']} lines")
    if data.get("doing"):
        parts.append(f"in {data['doing']}, no progress for {wording.lasted(data['quiet_s'])}")
    head = Text(f"page {data['page']}: {data['state']} for {wording.lasted(data['age_s'])}", style="bold")
    reason = [Text(data["reason"], style="red")] if data.get("reason") else []
    return Group(head, *reason, *([Text(", ".join(parts))] if parts else []), story)


def arena(data: Json, width: int) -> RenderableType:
    table = _table("PAGE", "STATE", "HOLDER", "SIZE", "OFFSET", "FOR")
    for block in data["blocks"]:
        holder, size = block["holder"] or "(none: ready)", wording.size(block["bytes"])
        age = wording.lasted(block["age_s"])
        _row(table, block["page"], block["state"], holder, size, str(block["offset"]), age)
    used = wording.share(data["used_bytes"], data["size_bytes"])
    return Group(table, Text(f"{used} in {len(data['blocks'])} blocks; {data['waiting']} pages wait for one"))


def queues(data: Json, width: int) -> RenderableType:
    table = _table("ACTOR", "WAITING", "UNREAD", "CAPACITY", "OLDEST", "IN/S", "OUT/S", "SENT", "RECEIVED")
    for row in data["queues"]:
        numbers = (row["waiting"], row["in_flight"], row["capacity"])
        rates = (f"{row['in_per_s']:.1f}", f"{row['out_per_s']:.1f}", str(row["sent"]), str(row["received"]))
        _row(table, row["actor"], *map(str, numbers), wording.lasted(row["oldest_s"]), *rates)
    return table


def events(data: Json, width: int) -> RenderableType:
    return Group(*(Text(screen.event_text(event)) for event in data["events"]))


def tail(data: Json, width: int) -> RenderableType:
    return Group(*(Text(line) for line in data["lines"]))


def exits(data: Json, width: int) -> RenderableType:
    if not data["exits"]:
        return Text("  no process has ended")
    table = _table("AT", "ACTOR", "PID", "UP", "RSS", "PAGES", "HOW", "WHY")
    for e in data["exits"]:
        who, pages_held = f"{e['actor']}#{e['incarnation']}", " ".join(e["pages"])
        up, rss = wording.clock(e["uptime_s"]), wording.size(e["rss_bytes"])
        _row(table, wording.of_day(e["at"]), who, str(e["pid"]), up, rss, pages_held, e["how"], e["asked"])
    return table


def config(data: Json, width: int) -> RenderableType:
    table = _table("SETTING", "VALUE", "FROM")
    for setting in data["settings"]:
        _row(table, setting["name"], setting["value"] or "(unset)", setting["source"])
    return table


def stack(data: Json, width: int) -> RenderableType:
    head = f"{data['actor']}#{data['incarnation']} (pid {data['pid']}) at {wording.of_day(data['at'])}"
    lines = [Text(head, style="bold")]
    for place in data["places"]:
        page_held = f"page {place['page']} " if place["page"] else ""
        quiet = wording.lasted(place["quiet_s"])
        text = f"{page_held}{'is in' if place['inside'] else 'waits:'} {place['step']} {place['detail']}".rstrip()
        lines.append(Text(f"  {text}, no progress for {quiet}, thread {place['thread']}", style="bold"))
    if not data["places"]:
        lines.append(Text("  no page is in it"))
    return Group(*lines, *(Text(line) for line in _marked(data)))


def _marked(data: Json) -> Iterator[str]:
    """The dump, threads that work for a page first and with its name."""
    blocks = [block.strip("\n") for block in data["stacks"].split("\n\n")]
    for place in data["places"]:
        for block in [block for block in blocks if place["thread"] in block.partition("\n")[0]]:
            blocks.remove(block)
            first, _, rest = block.partition("\n")
            yield from (f"{first}   <- {place['page'] or place['step']}", rest, "")
    yield from (f"{block}\n" for block in blocks)


def done(data: Json, width: int) -> RenderableType:
    return Text(data["done"])


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    wide = ("REASON", "WHY", "VALUE", "HOW", "DOING", "")
    for title in titles:
        table.add_column(title, no_wrap=title not in wide, overflow="fold")
    return table


def _row(table: Table, *cells: str) -> None:
    """Plain text: a page's reason may hold what rich would take for markup."""
    table.add_row(*map(Text, cells))


RENDERERS: dict[str, Callable[[Json, int], RenderableType]] = {
    renderer.__name__: renderer
    for renderer in (status, watch, show, pages, page, arena, queues, events, tail, exits, config, stack)
}
