"""`make bench`: every case, one table, one JSON file; status 1 where a limit is missed."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tools.bench import costs, done, endings, real, streaming
from tools.bench.figures import Figure, Result, document, table
from tools.bench.scene import ROOT, Scene, scene
from tools.localstack import Unavailable

Case = Callable[[Scene], "list[Figure] | str"]
CASES: dict[str, Case] = {
    "idle": streaming.idle,
    "slow-store": streaming.slow_store,
    "late-page": streaming.late_page,
    "stalls": streaming.stalls,
    "hang": endings.hang,
    "four-hangs": endings.four_hangs,
    "sigterm": endings.sigterm,
    "sigterm-dead-store": endings.sigterm_dead_store,
    "thousand": costs.thousand,
    "decodes": costs.decodes,
    "two-gpus": streaming.two_gpus,
    "done-already": done.done_already,
    "real": real.collection,
    "real-main": real.document,
}


def measured(name: str, place: Scene) -> Result:
    try:
        found = CASES[name](place)
    except (AssertionError, Unavailable) as e:
        print(f"{name}: {str(e)[-4000:]}", file=sys.stderr, flush=True)
        return Result(name, error=(str(e).splitlines() or ["the case did not end as it must"])[0][:90])
    return Result(name, left_out=found) if isinstance(found, str) else Result(name, tuple(found))


def machine() -> dict[str, Any]:
    return {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform(), "load": os.getloadavg()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=f"one of {', '.join(CASES)}; may be repeated")
    parser.add_argument("--quick", action="store_true", help="scaled down: shows that it works, says little")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="folder of bench.json and of the pages")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    with ExitStack() as stack:
        shared: dict[str, Any] = {"stack": stack}
        for name in given.only or CASES:
            print(f"{name} ...", file=sys.stderr, flush=True)
            with scene(given.out, given.quick, shared) as place:
                results.append(measured(name, place))
            print(table(results[-1:]), file=sys.stderr, flush=True)
    said = document(results, machine() | {"quick": given.quick})
    (given.out / "bench.json").write_text(json.dumps(said, indent=1))
    print(table(results))
    return 0 if said["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
