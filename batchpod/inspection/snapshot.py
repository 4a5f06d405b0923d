"""The snapshot of a run that is published once a second: the run as a whole, its actors, its queues.

Reads the run's state and samples the kernel's numbers; changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from batchpod.flow.ledger import State
from batchpod.inspection import actor_rows
from supervisor.memory import Cgroup
from supervisor.procfs import Usage
from supervisor.queues import CREDIT

if TYPE_CHECKING:
    from batchpod.run import Run

Json = dict[str, Any]
SAMPLE_S = 0.9
"""Rates and CPU shares over less time than this say nothing."""
MOVING = (
    State.FETCHING, State.FETCHED, State.DECODING, State.READY, State.TRANSCRIBING, State.EXPORTED, State.UPLOADING
)  # fmt: skip


class Snapshots:
    """Makes them, and keeps what the next one is compared with."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.usage, self._cgroup = Usage(), Cgroup()
        self._traffic: dict[int, tuple[int, int]] = {}
        self._queues: list[Json] = []
        self._sampled_at = 0.0

    def take(self, exits: Sequence[Json], failure: str) -> Json:
        """`{"run", "actors", "queues"}` as they are now; `exits` are the exit records, `failure` why the run ends."""
        run, now = self._run, self._run.loop.clock.now()
        if now - self._sampled_at >= SAMPLE_S:
            self.usage.sample([os.getpid(), *(child.pid for child in run.loop.children)], now)
            self._queues = self._queue_rows(now - self._sampled_at)
            self._sampled_at = now
        rows = actor_rows.rows(run)
        for row in rows:
            row["rss_bytes"] = self.usage.rss_bytes.get(row["pid"])
            row["cpu_percent"] = self.usage.cpu_percent.get(row["pid"])
            last = next((e for e in reversed(exits) if e["actor"] == row["actor"]), None)
            row["last_exit"] = (last["asked"] or last["how"]) if last else ""
            row["last_exit_at"] = last["at"] if last else None
        standing = self._standing(failure) | {"sentence": actor_rows.sentence(run, rows, failure)}
        return {"run": standing, "actors": rows, "queues": self._queues}

    def _standing(self, failure: str) -> Json:
        run, ledger = self._run, self._run.stream.ledger
        standing, memory = run.reporter.standing(), self._cgroup.read()
        since = run.reporter.stream_at
        streaming_s = run.loop.clock.now() - since if since else 0.0
        return {
            "volume": run.config.volume_ref,
            "pipeline": run.config.pipeline_id,
            "at": time.time(),
            "pid": os.getpid(),
            "rss_bytes": self.usage.rss_bytes.get(os.getpid()),
            "stage": run.reporter.stage,
            "ending": run.ending,
            "failure": failure,
            "paused": run.stream.paused,
            "elapsed_s": round(standing.elapsed_s, 1),
            "total": standing.total,
            "done": standing.done,
            "failed": standing.failed,
            "deferred": standing.deferred,
            "left": ledger.unfinished,
            "pages_per_second": round(standing.pages_per_second, 3),
            "left_s": standing.left_s,
            "stall_percent": round(100 * run.stream.stalls.gpu_stall_s / streaming_s) if streaming_s else 0,
            "store_stall_s": round(run.stream.stalls.store_stall_s, 1),
            "slowest_turn_s": round(run.loop.slowest_turn_s, 4),
            "counts": {str(state): ledger.count(state) for state in State},
            "moving": [str(state) for state in MOVING],
            "fetched_bytes": sum(page.held_bytes for page in ledger.each(State.FETCHED, State.DECODING)),
            "lookahead_pages": run.stream.lookahead_pages,
            "ready_bytes": sum(page.pixel_bytes for page in ledger.each(State.READY)),
            "arena_used_bytes": run.stream.arena.used_bytes,
            "arena_bytes": run.stream.arena.size_bytes,
            "backlog_bytes": run.stream.backlog_bytes,
            "backlog_limit_bytes": run.config.upload_backlog_bytes,
            "memory_used_bytes": memory.used_bytes if memory else None,
            "memory_limit_bytes": memory.limit_bytes if memory else None,
        }

    def _queue_rows(self, since_s: float) -> list[Json]:
        rows, traffic = [], {}
        for child in self._run.loop.children:
            out = child.outgoing
            sent, received = out.sent, child.incoming.received
            before = self._traffic.get(child.pid, (0, 0))
            traffic[child.pid] = sent, received
            rows.append(
                {
                    "actor": child.name,
                    "waiting": out.depth,
                    "in_flight": out.in_flight,
                    "capacity": CREDIT,
                    "oldest_s": round(out.stuck_s(), 1),
                    "in_per_s": round((sent - before[0]) / since_s, 1) if self._sampled_at else 0.0,
                    "out_per_s": round((received - before[1]) / since_s, 1) if self._sampled_at else 0.0,
                    "sent": sent,
                    "received": received,
                }
            )
        self._traffic = traffic
        return rows
