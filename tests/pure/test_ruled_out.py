"""What measured faults of inter-process tools rule out, kept out of the code: nothing here may ever be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("batchpod", "actors", "supervisor")
FORBIDDEN = {
    "a shared queue, lock or value: its lock dies with whoever holds it, a half-written message blocks every reader": re.compile(
        r"\b(?:multiprocessing|mp|context)\.(?:(?:Simple|Joinable)?Queue|R?Lock|Event|Condition|(?:Bounded)?Semaphore|Barrier"
        r"|Value|Array|Manager|Pool)\b|from multiprocessing(?:\.queues|\.synchronize|\.managers|\.pool)? import .*"
        r"(?:Queue|Lock|Event|Condition|Value|Manager|Pool)\b"
    ),
    "named shared memory: whoever attaches it first unlinks it at its end": re.compile(r"shared_memory|SharedMemory"),
    "a wait for any child: it takes the exit status of multiprocessing's": re.compile(
        r"\bwaitpid\(-1|\bos\.wait\(\)|\bwait3\(|P_ALL\b"
    ),
    "a start other than spawn: siblings would hold each other's pipes open, and the parent would be another": re.compile(
        r"os\.fork\(|forkserver|get_context\(\)|get_context\((?!\"spawn\")|set_start_method"
    ),
}


@pytest.mark.parametrize("why", FORBIDDEN)
def test_no_module_uses_what_is_ruled_out(why: str):
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                assert not FORBIDDEN[why].search(line), f"{path.relative_to(ROOT)}:{number} uses {why}"
