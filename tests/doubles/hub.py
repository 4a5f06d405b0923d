"""A local stand-in of the model Hub's HTTP interface, for HF_ENDPOINT: what huggingface_hub asks of it.

Serves the repositories of a folder in the cache's layout (`models--owner--name/{refs,snapshots}`). Runs in threads of
its own; the faults are plain attributes, read at each request.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(?:/(.*))?)?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass(slots=True)
class Hub:
    """`gated` are repositories; `cut` and `hold` parts of paths. A cut answer ends in the middle of its body, a held
    one does not come until `release` is set. `requests` are methods and paths as they came, `tokens` what came as
    Authorization."""

    folder: Path
    url: str = ""
    gated: set[str] = field(default_factory=set)
    cut: str = ""
    hold: str = ""
    release: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    def snapshot(self, repository: str, revision: str) -> tuple[Path, str] | None:
        """The folder and the commit of a revision, a branch or a commit."""
        place = self.folder / f"models--{repository.replace('/', '--')}"
        ref = place / "refs" / revision
        commit = ref.read_text().strip() if ref.is_file() else revision
        snapshot = place / "snapshots" / commit
        return (snapshot, commit) if snapshot.is_dir() else None


class _Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        self.hub.tokens.add(self.headers.get("Authorization", ""))
        if self.hub.hold and self.hub.hold in path:
            self.hub.release.wait(60)
            self.close_connection = True
            return
        try:
            self._answer(path)
        except _Refused as e:
            self._send(e.status, b"{}", {"X-Error-Code": e.code, "X-Error-Message": e.code})
        except ConnectionError:
            self.close_connection = True

    do_HEAD = do_GET
    do_POST = do_GET

    def _answer(self, path: str) -> None:
        if found := _FILE.fullmatch(path):
            repository, revision, name = found.groups()
            folder, commit = self._snapshot(repository, revision)
            if not (folder / name).is_file():
                raise _Refused(404, "EntryNotFound")
            self._send_file(path, (folder / name).read_bytes(), commit)
        elif found := _API.fullmatch(path):
            repository, kind, revision, within = found.groups()
            if repository in self.hub.gated and kind != "tree":
                revision = None  # Its description stays public.
            folder, commit = self._snapshot(repository, revision or "main", public=kind != "tree")
            if within:
                raise _Refused(404, "EntryNotFound")
            self._send(200, json.dumps(_described(repository, kind, folder, commit)).encode())
        else:
            raise _Refused(404, "EntryNotFound")

    def _snapshot(self, repository: str, revision: str, public: bool = False) -> tuple[Path, str]:
        if self.hub.snapshot(repository, "main") is None:
            raise _Refused(404, "RepoNotFound")
        if repository in self.hub.gated and not public:
            raise _Refused(403, "GatedRepo")
        found = self.hub.snapshot(repository, revision)
        if found is None:
            raise _Refused(404, "RevisionNotFound")
        return found

    def _send_file(self, path: str, body: bytes, commit: str) -> None:
        headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        status, start = 200, 0
        if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            status, start = 206, int(asked[1])
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._send(status, body[start:], headers, cut=bool(self.hub.cut) and self.hub.cut in path)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut:
            # Nothing on a later part: huggingface_hub counts its retries anew after each byte that comes.
            self.wfile.write(b"" if status == 206 else body[: len(body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The requests are kept in `hub.requests`."""


def _described(repository: str, kind: str | None, folder: Path, commit: str) -> object:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    names = [p.relative_to(folder).as_posix() for p in files]
    if kind == "tree":
        return [
            {"type": "file", "path": name, "size": p.stat().st_size, "oid": hashlib.sha1(p.read_bytes()).hexdigest()}
            for name, p in zip(names, files, strict=True)
        ]
    return {"id": repository, "modelId": repository, "sha": commit, "siblings": [{"rfilename": n} for n in names]}


@contextlib.contextmanager
def running_hub(folder: Path) -> Iterator[Hub]:
    """The stand-in, serving the repositories in `folder`."""
    hub = Hub(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub})) as server:
        server.daemon_threads = False
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hub
        finally:
            hub.release.set()
            server.shutdown()
            thread.join()
