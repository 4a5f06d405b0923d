"""The hash-locked requirement files under container/locks, made from pyproject.toml and the `.in` files beside them.

`python tools/locks.py` makes them anew (`--upgrade` lets versions move), `--check` says whether they still belong to
their inputs, without a network. A lock names versions and hashes for every Python this project runs on and no index:
which one serves them is the affair of the machine that installs. Each file's first line carries a digest of what it
was made from.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "container" / "locks"
OLDEST_PYTHON = "3.11"
HEADER = "# Made by `make lock`, not by hand. Inputs: sha256:"


@dataclass(frozen=True, slots=True)
class Lock:
    """One lock file: `extras` of the project (None: the project is not part of it) and `.in` files.

    `within` names a lock whose versions this one shares.
    """

    name: str
    extras: tuple[str, ...] | None = None
    inputs: tuple[str, ...] = ()
    within: str | None = None


TABLE = (
    Lock("dev", extras=("htrflow", "dev")),
    Lock("htrflow", extras=("htrflow",), within="dev"),
    Lock("runtime", extras=(), within="dev"),
    Lock("image-transformers5", extras=(), inputs=("htrflow-source", "transformers5"), within="runtime"),
    Lock("image-transformers4", extras=(), inputs=("htrflow-source", "transformers4"), within="runtime"),
    Lock("image-build", inputs=("image-build",)),
    Lock("localstack", inputs=("localstack",)),
)


def digest(lock: Lock) -> str:
    """Sha256 of what decides the lock's content: dependency tables, Python range, `.in` files."""
    parts: list[object] = [OLDEST_PYTHON]
    if lock.extras is not None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = {extra: project["optional-dependencies"][extra] for extra in lock.extras}
        parts += [project["requires-python"], project["dependencies"], extras]
    parts += [(LOCKS / f"{name}.in").read_text() for name in lock.inputs]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def make(lock: Lock, upgrade: bool) -> None:
    """Resolve one lock; raises CalledProcessError when there is no solution or no index to ask."""
    path = LOCKS / f"{lock.name}.txt"
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
    command += ["--python-version", OLDEST_PYTHON, "--no-header", "--output-file", str(path)]
    command += ["--upgrade"] * upgrade
    if lock.within is not None:
        command += ["--constraints", str(LOCKS / f"{lock.within}.txt")]
    if lock.extras is not None:
        command += [str(ROOT / "pyproject.toml")]
    for extra in lock.extras or ():
        command += ["--extra", extra]
    command += [str(LOCKS / f"{name}.in") for name in lock.inputs]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    path.write_text(f"{HEADER}{digest(lock)}\n{path.read_text()}")


def problems(lock: Lock) -> list[str]:
    """What is wrong with one lock file, as sentences; empty when it can be installed with --require-hashes."""
    path = LOCKS / f"{lock.name}.txt"
    if not path.exists():
        return [f"{path.name} is missing: run `make lock`"]
    first, _, body = path.read_text().partition("\n")
    found = []
    if first != HEADER + digest(lock):
        found.append(f"{path.name} was made from other inputs: run `make lock`")
    if re.search(r"^\s*-(?!-hash=sha256:)|://", body, re.MULTILINE):
        found.append(f"{path.name} holds an option or an address")
    entries = re.findall(r"^[A-Za-z0-9](?:.*\\\n)*.*", body, re.MULTILINE)
    unlocked = [e.splitlines()[0] for e in entries if "==" not in e or "--hash=sha256:" not in e]
    found += [f"{path.name}: {line} has no version or no hash" for line in unlocked]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where a lock is stale")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that the inputs admit")
    options = parser.parse_args()
    if not options.check:
        for lock in TABLE:
            make(lock, options.upgrade)
    found = [problem for lock in TABLE for problem in problems(lock)]
    print("\n".join(found) or f"{len(TABLE)} lock files match their inputs")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
