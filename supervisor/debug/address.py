"""Where the debug socket is: in the working directory, or under a short name where that path is too long.

The server and the client go the same way, so that one finds what the other made.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

NAME = "supervisor.sock"
LONGEST_BYTES = 107
"""sun_path has 108 bytes on Linux, the last for a NUL."""
DEFAULT_WORKDIR = "/work"
_OURS = re.compile(r"/supervisor(-[0-9a-f]{16})?\.sock$")


def socket_path(workdir: str | Path) -> Path:
    """The socket of the supervisor in `workdir`; a short name in the temporary directory where its path is too long.

    Raises:
        OSError: its path is too long, and in no temporary directory could nobody else take the short name away.
    """
    for path in _candidates(workdir):
        return path
    raise OSError(f"{_plain(workdir)} is too long for a socket, and no temporary directory is safe to have one in")


def existing(workdir: str | Path) -> Path | None:
    """The socket that a supervisor in `workdir` has made, also if its temporary directory was another one than ours.

    A short name can be known beforehand: one that belongs to neither us, root nor the owner of `workdir` is not it.
    """
    plain = _plain(workdir)
    for path in _candidates(workdir):
        if _is_socket(path) and (path == plain or path.lstat().st_uid in _owners(workdir)):
            return path
    return None


def _plain(workdir: str | Path) -> Path:
    return Path(os.path.abspath(workdir), NAME)


def _is_socket(path: Path) -> bool:
    """Whether it is one itself: a link to one is not."""
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def _owners(workdir: str | Path) -> set[int]:
    try:
        return {0, os.geteuid(), os.stat(workdir).st_uid}
    except OSError:
        return {0, os.geteuid()}


def _is_safe(directory: str, owners: set[int]) -> bool:
    """Whether nobody but `owners` can take a name in it away, or put another in its place."""
    try:
        found = os.stat(directory)
    except OSError:
        return False
    shared = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    return found.st_uid in owners and not shared


def _candidates(workdir: str | Path) -> Iterator[Path]:
    plain = _plain(workdir)
    if len(os.fsencode(plain)) <= LONGEST_BYTES:
        yield plain
        return
    # Imported here: a probe that runs every few seconds has no long path.
    import hashlib
    import tempfile

    digest = hashlib.sha256(os.fsencode(os.path.realpath(workdir))).hexdigest()[:16]
    for directory in (tempfile.gettempdir(), "/tmp"):
        path = Path(directory, f"supervisor-{digest}.sock")
        if len(os.fsencode(path)) <= LONGEST_BYTES and _is_safe(directory, _owners(workdir)):
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
        found = path if _is_socket(Path(os.path.realpath(path))) else existing(path)
        if found is None:
            raise NotFound(f"there is no socket at {path}{_else_here()}")
        return found
    given = environ.get("WORKDIR_PATH")
    workdir = given or DEFAULT_WORKDIR
    if (found := existing(workdir)) is not None:
        return found
    path = _plain(workdir)
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
