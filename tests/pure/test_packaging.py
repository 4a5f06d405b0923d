"""What is installed is what the repository holds, at the versions that the lock files name."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

from tools.locks import LOCKS, TABLE, problems

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("lock", TABLE, ids=lambda lock: lock.name)
def test_lock_files_belong_to_their_inputs_and_name_a_hash_for_everything(lock) -> None:  # type: ignore[no-untyped-def]
    assert problems(lock) == []


@pytest.mark.parametrize("script", PROJECT["project"]["scripts"].items(), ids=lambda script: script[0])
def test_console_scripts_lead_to_a_function(script: tuple[str, str]) -> None:
    module, _, attribute = script[1].partition(":")
    assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    assert callable(getattr(import_module(module), attribute))


def test_every_data_file_of_the_packages_is_shipped() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    for package in ("batchpod", "actors", "supervisor"):
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc", ".md") and ".ruff_cache" not in path.parts:
                assert any(path.match(pattern) for pattern in patterns), f"{path.relative_to(ROOT)} stays behind"


def test_the_installed_project_is_this_checkout() -> None:
    if not [point for point in entry_points(group="console_scripts") if point.name == "batchpod"]:
        pytest.skip("the project is not installed here: run `make setup`")
    assert version("batchpod") == import_module("batchpod").__version__


def test_the_image_shares_its_versions_with_the_tests() -> None:
    def pins(name: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for package, number in re.findall(r"^([a-z0-9-]+)==(\S+)", (LOCKS / f"{name}.txt").read_text(), re.MULTILINE):
            found.setdefault(package, set()).add(number)
        return found

    tested = pins("dev")
    runtime = pins("runtime")
    assert runtime.items() <= tested.items()
    for image in ("image-transformers4", "image-transformers5"):
        assert {package: pins(image).get(package) for package in runtime} == runtime
