"""How many threads a gpu process gives torch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.gpu.surroundings import cpu_threads

NO_QUOTA = Path("/nonexistent/cpu.max")


@pytest.fixture
def all_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


@pytest.mark.usefixtures("all_cpus")
@pytest.mark.parametrize(
    ("quota", "processes", "threads"),
    [
        ("max 100000", 1, 15),
        ("400000 100000", 1, 3),
        ("350000 100000", 1, 3),
        ("100000 100000", 1, 1),
        ("50000 100000", 2, 1),
        ("800000 100000", 2, 3),
        ("6400000 100000", 1, 15),
        ("nonsense", 3, 5),
    ],
)
def test_one_cpu_is_left_to_fetching_and_the_rest_is_shared_out(tmp_path: Path, quota: str, processes: int, threads: int) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    assert cpu_threads(processes, file) == threads


@pytest.mark.usefixtures("all_cpus")
def test_without_a_cgroup_the_affinity_counts() -> None:
    assert cpu_threads(1, NO_QUOTA) == 15
