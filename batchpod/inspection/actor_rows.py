"""One row an actor, as people see it: what it does now, for how long, and after how long it is ended.

Reads the run's state and the actors' marks; changes nothing. The columns are those of `batchpod-debug watch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from actors.messages import page_name
from batchpod.flow.ledger import State
from batchpod.gpus.slots import Phase, Slot
from batchpod.gpus.standby import STANDBY
from batchpod.services import BEAT_S, Service
from supervisor.lifecycle import Life
from supervisor.process import Incarnation

if TYPE_CHECKING:
    from batchpod.run import Run

Row = dict[str, Any]
QUIET_S = 60.0
"""After so long without a page that came out, or without progress of a page, the sentence says so."""
_FETCHED = (State.FETCHED, State.DECODING, State.READY, State.TRANSCRIBING, State.EXPORTED, State.UPLOADING, State.OK)
_ON_THE_WAY = (State.WAITING, State.FETCHING, State.FETCHED, State.DECODING)
_UPLOADER_STAGES = {
    "resume": "lists the bucket",
    "verify": "lists the bucket",
    "publish": "publishes",
}


def rows(run: Run) -> list[Row]:
    """Fetcher, gpus, standby (if there is one), uploader."""
    spare = [_standby(run, run.gpus.standby)] if run.gpus.standby is not None else []
    return [_fetcher(run), *(_gpu(run, slot) for slot in run.gpus.slots), *spare, _uploader(run)]


def _row(name: str, child: Incarnation | None, state: str, *, ok: bool) -> Row:
    return {
        "actor": name,
        "incarnation": child.number if child else None,
        "pid": child.pid if child else None,
        "state": state,
        "ok": ok,
        "up_s": round(child.uptime_s, 1) if child else None,
        "doing": "",
        "for_s": None,
        "limit_s": None,
        "beat_s": None,
        "pages": [],
        "done": None,
        "failed": None,
        "restarts": None,
    }


def _beat_s(run: Run, child: Incarnation | None) -> float | None:
    if child is None:
        return None
    count, at = child.marks.beat
    return round(run.loop.clock.age(at), 1) if count else None


def _service(run: Run, service: Service) -> Row:
    child = service.child
    running = child is not None and child.life is Life.RUNNING
    state = str(child.life) if child else "closed" if service.closing else "down"
    row = _row(service.name, child, state, ok=running or service.closing)
    beat_s = _beat_s(run, child)
    row |= {"beat_s": beat_s, "restarts": service.restarts}
    if running and child is not None:
        row |= {"for_s": beat_s if beat_s is not None else round(child.uptime_s, 1), "limit_s": BEAT_S}
    return row


def _fetcher(run: Run) -> Row:
    ledger, row = run.stream.ledger, _service(run, run.fetcher)
    asked, decoding = ledger.numbers(State.FETCHING), ledger.numbers(State.DECODING)
    downloads = min(len(asked), run.config.download_concurrency)
    parts = [f"{downloads} downloads"] * bool(downloads) + [f"{len(decoding)} decodes"] * bool(decoding)
    doing = ", ".join(parts) or ("reads the page list" if run.reporter.stage == "setup" else "waits")
    lost = sum(not page.width for page in ledger.each(State.FAILED, State.DEFERRED))
    return row | {
        "doing": doing if row["state"] == Life.RUNNING else "",
        "pages": _names([*decoding, *asked[:downloads]]),
        "done": ledger.count(*_FETCHED),
        "failed": lost,
    }


def _uploader(run: Run) -> Row:
    ledger, row = run.stream.ledger, _service(run, run.uploader)
    uploading = ledger.numbers(State.UPLOADING)
    doing = f"{len(uploading)} uploads" if uploading else _UPLOADER_STAGES.get(run.reporter.stage, "waits")
    lost = sum(page.lines is not None for page in ledger.each(State.FAILED, State.DEFERRED))
    return row | {
        "doing": doing if row["state"] == Life.RUNNING else "",
        "pages": _names(uploading),
        "done": ledger.count(State.OK),
        "failed": lost,
    }


def _gpu(run: Run, slot: Slot) -> Row:
    child, clock = slot.child, run.loop.clock
    state = "running" if slot.phase is Phase.READY else str(slot.phase)
    if child is None:
        state = "closed" if run.gpus.closing else "retired" if slot.phase is Phase.RETIRED else "down"
    alive = child is not None and child.life is Life.RUNNING and slot.phase not in (Phase.ENDING, Phase.RETIRED)
    row = _row(slot.name, child, state, ok=alive or run.gpus.closing)
    row |= {"beat_s": _beat_s(run, child), "done": slot.done, "failed": slot.failed, "restarts": slot.restarts}
    # An ended process's pages are counted to it until they are settled; nobody has them in hand.
    row["pages"] = [page_name(page) for page in slot.pages] if child is not None else []
    limits = {Phase.IMPORTING: run.config.gpu_start_s, Phase.LOADING: run.config.gpu_load_s}
    if slot.phase in limits and child is not None:
        mark = next(iter(child.marks.tasks()), None)
        doing = f"{mark.step} {mark.detail}".strip() if mark else str(slot.phase)
        row |= {"doing": doing, "for_s": round(clock.age(slot.phase_at), 1), "limit_s": limits[slot.phase]}
    elif row["pages"]:
        pages = run.gpus.in_flight(slot)
        # What a hang is judged by: pages inside something, unless all of them wait.
        shown = max([p for p in pages if p.inside] or pages, key=lambda p: p.age_s)
        row["pages"].sort(key=lambda name: name != page_name(shown.page))
        row |= {"doing": f"{shown.step} {shown.detail}".strip() or "begins a page"}
        row |= {"for_s": round(shown.age_s, 1), "limit_s": run.config.page_timeout_s}
    elif slot.phase is Phase.READY:
        row["doing"] = "paused" if run.stream.paused else "waits for a page"
    return row


def _standby(run: Run, child: Incarnation) -> Row:
    ready = run.gpus.standby_ready
    row = _row(STANDBY, child, "ready" if ready else "importing", ok=True)
    row |= {"doing": "imports done" if ready else "imports", "beat_s": _beat_s(run, child)}
    if not ready:
        row |= {"for_s": round(child.uptime_s, 1), "limit_s": run.config.gpu_start_s}
    return row


def _names(pages: Sequence[int]) -> list[str]:
    return [page_name(page) for page in pages[:20]]


def sentence(run: Run, rows: Sequence[Row], failure: str) -> str:
    """How the run stands, in one sentence: the first thing that a person would want to know."""
    ledger, stage = run.stream.ledger, run.reporter.stage
    if failure:
        return f"The run has failed in stage {stage} and is ending: {failure}"
    if run.ending:
        return "Everything is published; the last words are being stored."
    for row in rows:
        if not row["ok"]:
            last = f"; its last exit: {row['last_exit']}" if row.get("last_exit") else ""
            return f"{row['actor']} is not running ({row['state']}){last}."
    if run.stream.paused:
        return "Paused by a person: no page is handed to the GPU (batchpod-debug resume)."
    for row in rows:
        for_s, limit_s = row["for_s"], row["limit_s"]
        in_page = bool(row["pages"]) and row["actor"].startswith("gpu")
        if for_s is not None and limit_s and for_s >= (min(QUIET_S, limit_s / 2) if in_page else limit_s / 2):
            page = f" on page {row['pages'][0]}" if in_page else ""
            what = f" in {row['doing']}" if row["doing"] else ""
            quiet = f"{row['actor']} shows no progress{page} for {for_s:.0f} s{what}"
            return f"{quiet}; at {limit_s:g} s it is ended (batchpod-debug stack {row['actor']})."
    if stage not in ("load", "stream"):
        return f"Stage {stage}."
    if run.stream.origin_down:
        return "The image server is down: what is fetched already still goes through, then the run ends."
    if run.stream.backlog_bytes >= run.config.upload_backlog_bytes:
        return "The store is slow: no page goes to the GPU until some of what waits for upload is stored."
    if stage == "load":
        return "The models are being loaded; pages are fetched meanwhile."
    gpus = [row for row in rows if row["actor"].startswith("gpu")]
    if not any(row["pages"] for row in gpus):
        if ready := ledger.count(State.READY):
            states = ", ".join(f"{row['actor']} is {row['state']}" for row in gpus)
            return f"{states}; pages that are ready: {ready}."
        if ledger.count(*_ON_THE_WAY):
            return "The GPU waits: no page is ready (batchpod-debug pages, batchpod-debug tail fetcher)."
    done = f"{ledger.count(State.OK, State.SKIPPED)} of {len(ledger)} are done"
    newest = ledger.numbers(State.OK)[-1:]
    clock, begun_at = run.loop.clock, run.reporter.stream_at
    quiet_s = clock.age(ledger[newest[0]].since_at if newest else begun_at or clock.now())
    if quiet_s < QUIET_S:
        return f"Pages are moving: {done}."
    storing = ledger.count(State.EXPORTED, State.UPLOADING)
    where = f"; {storing} wait for the store (batchpod-debug tail uploader)" if storing else ""
    return f"No page has come out for {quiet_s:.0f} s: {done}{where}."
