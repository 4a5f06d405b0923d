"""`batchpod pages`: which pages a manifest gives, read as stage `setup` of a run reads it.

Owns the command and what an unreadable manifest means for the exit code; requests are
actors/fetcher/http.py's, the manifest's form manifest.py's.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.fetcher.http import Client
from actors.fetcher.manifest import read_manifest
from actors.fetcher.source import ManifestError, Source
from actors.fetcher.source_reading import SourceLost, fetch_manifest
from actors.messages import page_name
from actors.redact import credentials_only
from batchpod import advice
from batchpod.errors import ConfigError, Permanent, RunError, Transient
from batchpod.settings import environment
from batchpod.settings.environment import Command, shown
from batchpod.verdict import ExitCode, verdict_of


def run(source: str, environ: Mapping[str, str], *, credentials: bool) -> int:
    """Print the pages of `source`, a file or a URL, one line each; the exit code."""
    try:
        values, problems = environment.read(environ, Command.PAGES)
        if problems:
            raise ConfigError(problems)
        found = read(source, values)
    except RunError as e:
        verdict = verdict_of(e, "setup")
        print(advice.failure(verdict), file=sys.stderr)
        return verdict.code
    for note in found.notes:
        print(note, file=sys.stderr)
    lines = (
        f"{page_name(number)}\t{page.url if credentials else credentials_only(page.url)}\n"
        for number, page in enumerate(found.pages, 1)
    )
    try:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
    except BrokenPipeError:  # Whoever reads has seen enough; what is left must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK


def read(source: str, values: Mapping[str, Any]) -> Source:
    """The pages of a manifest; `values` are those of environment.read for Command.PAGES.

    Raises:
        Permanent, Transient: in stage `setup`.
    """
    if not source.strip():
        raise Permanent("setup", "the manifest's address is empty: expected a file or an http(s) URL")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", source):
        body, url = asyncio.run(_downloaded(source, values)), source
    else:
        body, url = _local(source, values["manifest_max_bytes"]), None
    try:
        return read_manifest(
            body,
            max_width=values["max_image_width"],
            empty_canvas=values["empty_canvas"],
            max_pages=values["max_pages"],
            url=url,
        )
    except ManifestError as e:
        raise Permanent("setup", str(e)) from e


async def _downloaded(url: str, values: Mapping[str, Any]) -> bytes:
    async with client(values) as origin:
        try:
            return await fetch_manifest(
                origin, url, most_bytes=values["manifest_max_bytes"], deadline_s=values["download_deadline_s"]
            )
        except SourceLost as e:
            raise (Permanent if e.permanent else Transient)("setup", str(e)) from e


def client(values: Mapping[str, Any]) -> Client:
    """Asks origins as a run does."""
    return Client(
        user_agent=values["user_agent"],
        deadline_s=values["download_deadline_s"],
        allow_private=values["fetch_allow_private"],
    )


def _local(path: str, most_bytes: int) -> bytes:
    try:
        with Path(path).open("rb") as f:
            body = f.read(most_bytes + 1)
    except OSError as e:
        raise Permanent("setup", f"{shown(path)} cannot be read: {e.strerror or e}") from e
    if len(body) > most_bytes:
        raise Permanent("setup", f"{shown(path)} has more than the {most_bytes} bytes allowed (MANIFEST_MAX_BYTES)")
    return body
