"""The origin as a program of its own, told by hand over HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def manifest_url(tmp_path: Path) -> Iterator[str]:
    Image.new("RGB", (40, 30)).save(tmp_path / "a b.tif")
    command = [sys.executable, "-m", "tools.origin", str(tmp_path), "--pages", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def ask(url: str, method: str = "GET", body: bytes | None = None) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, data=body, method=method), timeout=20) as answer:
        data = answer.read()
    return json.loads(data) if data[:1] in (b"{", b"[") else data


def test_it_serves_what_its_manifests_name_and_misbehaves_as_told(manifest_url: str) -> None:
    base = manifest_url.split("/iiif/")[0]
    items = ask(manifest_url)["items"]
    images = [item["items"][0]["items"][0]["body"]["id"] for item in items]
    canvases = ask(manifest_url.replace("manifest.json", "manifest2.json"))["sequences"][0]["canvases"]
    assert [c["images"][0]["resource"]["@id"] for c in canvases] == images
    assert len(set(images)) == 3
    assert all(ask(url).startswith(b"\xff\xd8\xff") for url in images)

    ask(f"{base}/faults?target=2&verb=status&status=410&times=1", "POST")
    with pytest.raises(urllib.error.HTTPError, match="410"):
        ask(images[1])
    assert ask(images[1])
    ask(f"{base}/faults", "POST", json.dumps({"*": {"verb": "html"}}).encode())
    assert ask(images[0]).startswith(b"<!DOCTYPE html>")
    assert ask(f"{base}/faults", "DELETE") == {}
    assert ask(images[0]).startswith(b"\xff\xd8\xff")
    assert [r["page"] for r in ask(f"{base}/requests")] == [None, None, 1, 2, 3, 2, 2, 1, 1]
