"""Where the debug socket is: in the working directory, or under a short name where that path is too long.

The server and the client go the same way, so that one finds what the other made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

NAME = "supervisor.sock"
LONGEST_BYTES = 107
"""sun_path has 108 bytes on Linux, the last for a NUL."""
DEFAULT_WORKDIR = "/work"
_OURS = re.compile(r"/supervisor(-[0-9a-f]{16})?\.sock$")


def socket_path(workdir: str | Path) -> Path:
    """The socket of the supervisor in `workdir`; a short name in the temporary directory where its path is too long."""
    return next(_candidates(workdir))


def existing(workdir: str | Path) -> Path | None:
    """The socket that a supervisor in `workdir` has made, also if its temporary directory was another one than ours."""
    return next((path for path in _candidates(workdir) if path.is_socket()), None)


def _candidates(workdir: str | Path) -> Iterator[Path]:
    plain = Path(os.path.abspath(workdir), NAME)
    if len(os.fsencode(plain)) <= LONGEST_BYTES:
        yield plain
        return
    # Imported here: a probe that runs every few seconds has no long path.
    import hashlib
    import tempfile

    digest = hashlib.sha256(os.fsencode(os.path.realpath(workdir))).hexdigest()[:16]
    for directory in (tempfile.gettempdir(), "/tmp"):
        path = Path(directory, f"supervisor-{digest}.sock")
        if len(os.fsencode(path)) <= LONGEST_BYTES:
            yield path


class NotFound(Exception):
    """No supervisor can be told from the environment; the text says what to do."""


class Several(NotFound):
    """More than one supervisor is alive and none was named."""


def find(named: str | None, environ: Mapping[str, str]) -> Path:
    """The socket to talk to: `named`, else that of WORKDIR_PATH, else that of /work, else the only one alive here.

    Raises:
        NotFound: there is none, or there are several.
    """
    if named:
        path = Path(named)
        found = path if path.is_socket() else existing(path) if path.is_dir() else None
        if found is None:
            raise NotFound(f"there is no socket at {path}{_else_here()}")
        return found
    given = environ.get("WORKDIR_PATH")
    workdir = given or DEFAULT_WORKDIR
    if (found := existing(workdir)) is not None:
        return found
    path = next(_candidates(workdir))
    if given:
        why = "no run is working in WORKDIR_PATH, it has ended, or it has not come so far"
        raise NotFound(f"there is no socket at {path}: {why}{_else_here()}")
    alive = listening()
    if len(alive) == 1:
        return alive[0]
    if alive:
        names = ", ".join(map(str, alive))
        raise Several(f"several runs are alive here: name the one you mean with --socket: {names}")
    raise NotFound(
        f"there is no socket at {path}, and no run is alive on this machine: inside a pod the run has ended or not "
        "begun; for a run elsewhere set WORKDIR_PATH to its working directory"
    )


def listening() -> list[Path]:
    """Sockets with our names on which somebody listens in this network namespace (a pod has one of its own)."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    fields = (line.split(maxsplit=7) for line in lines)
    accepting = "00010000"
    paths = {f[7] for f in fields if len(f) == 8 and f[3] == accepting and _OURS.search(f[7])}
    return [Path(path) for path in sorted(paths) if os.access(path, os.W_OK)]


def _else_here() -> str:
    alive = listening()
    return f"; alive on this machine: {', '.join(map(str, alive))} (name one with --socket)" if alive else ""
