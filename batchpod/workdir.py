"""The run's working directory: whose it is, the names of the files in it, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

from actors.room import no_room
from batchpod.errors import Cause, Permanent, Transient

LOCK = "run.lock"
SOCKET = "supervisor.sock"
FILES = (
    "pages.json", "source.json", "done.json", "missing.json", "outcomes.json", "interim.json", "dump.json", SOCKET, "log"
)
HALF_WRITTEN = (".part", ".new")
"""Behind a file's name while it is being written."""
INCARNATIONS = "gpu-*.*"


class Workdir:
    """Locked while the run lives; a second live run in the same directory is refused.

    The lock dies with its process, so what a killed run left behind is cleared by the next one.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._lock = -1

    def claim(self) -> None:
        """Take the directory and clear it of an earlier run's files.

        Raises:
            Permanent: another live run has it, or it cannot be written.
            Transient: there is no room in it.
        """
        try:
            self._lock = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._clear()
        except BlockingIOError:
            self._close()
            text = f"WORKDIR_PATH={self.root}: expected a directory of its own, but a live run is working in it"
            raise Permanent("config", text, Cause.WORKDIR_IN_USE) from None
        except OSError as e:
            self._close()
            text = f"WORKDIR_PATH={self.root}: expected a directory that can be written, but {e.strerror or e}"
            if no_room(e):
                raise Transient("config", text, Cause.WORKDIR_FULL) from e
            raise Permanent("config", text, Cause.CONFIG) from e

    def release(self) -> None:
        """Remove every file of this run and give the directory up."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                self._clear()
                (self.root / LOCK).unlink(missing_ok=True)
            self._close()

    def _close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _clear(self) -> None:
        written = [f"{name}{suffix}" for name in FILES for suffix in ("", *HALF_WRITTEN)]
        for path in [*(self.root / name for name in written), *self.root.glob(INCARNATIONS)]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def path(self, name: str) -> str:
        return str(self.root / name)

    @property
    def pages(self) -> str:
        return self.path("pages.json")

    @property
    def source(self) -> str:
        return self.path("source.json")

    @property
    def done(self) -> str:
        return self.path("done.json")

    @property
    def missing(self) -> str:
        return self.path("missing.json")

    @property
    def outcomes(self) -> str:
        return self.path("outcomes.json")

    @property
    def dump(self) -> str:
        return self.path("dump.json")

    @property
    def socket(self) -> str:
        return self.path(SOCKET)

    @property
    def log(self) -> str:
        return self.path("log")
