"""Imports go down only (batchpod, actors, supervisor), and what is heavy stays in the processes that need it."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("batchpod", "actors", "supervisor")
MODEL_CODE = {"torch", "torchvision", "htrflow", "transformers", "ultralytics", "cv2", "huggingface_hub"}
PIXEL_CODE = {"PIL", "numpy"}
SCREEN_CODE = {"rich", "textual"}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def names_imported(nodes: Iterator[ast.AST], package: str) -> set[str]:
    """Top-level names of absolute and relative imports among `nodes`; relative ones stay within `package`."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(package if node.level else (node.module or "").split(".")[0])
    return found


def run_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes whose code runs when the module is imported: no function bodies, no `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from run_at_import(node)


@pytest.mark.parametrize("package", LAYERS)
def test_a_layer_imports_nothing_from_above_it(package: str) -> None:
    above = set(LAYERS[: LAYERS.index(package)])
    for path in sources(package):
        imported = names_imported(ast.walk(ast.parse(path.read_text())), package)
        assert not imported & above, f"{path.relative_to(ROOT)} imports {imported & above}"


@pytest.mark.parametrize("package", LAYERS)
def test_models_pixels_and_screens_are_imported_only_where_they_are_used(package: str) -> None:
    for path in sources(package):
        place = path.relative_to(ROOT).as_posix()
        allowed: set[str] = set()
        if place.startswith("actors/gpu/"):
            allowed = MODEL_CODE | PIXEL_CODE
        elif place.startswith("actors/fetcher/"):
            allowed = PIXEL_CODE
        elif place.startswith("supervisor/debug/"):
            allowed = SCREEN_CODE
        imported = names_imported(run_at_import(ast.parse(path.read_text())), package)
        heavy = imported & (MODEL_CODE | PIXEL_CODE | SCREEN_CODE)
        assert heavy <= allowed, f"{place} imports {heavy - allowed} at its top"


def modules(package: str, *without: str) -> list[str]:
    found = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources(package)]
    names = [name.removesuffix(".__init__") for name in found if not name.endswith("__main__")]
    return [name for name in names if not name.startswith(without)]


def loaded_after(names: list[str]) -> set[str]:
    """Top-level names in sys.modules of a fresh interpreter that has imported `names`."""
    code = "import importlib, sys; [importlib.import_module(n) for n in sys.argv[1:]]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *names], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stdout.split()}


def test_the_supervising_process_holds_no_model_pixel_or_screen_code() -> None:
    names = [
        *modules("batchpod"),
        *modules("supervisor", "supervisor.debug"),
        "actors.messages",
        "actors.specs",
    ]
    assert not loaded_after(names) & (MODEL_CODE | PIXEL_CODE | SCREEN_CODE)


def test_the_probe_command_loads_no_screen_code() -> None:
    if not (ROOT / "supervisor" / "debug" / "cli.py").exists():
        pytest.skip("there is no debug client")
    assert not loaded_after(["supervisor.debug.cli"]) & (SCREEN_CODE | MODEL_CODE | PIXEL_CODE)


@pytest.mark.parametrize("package", LAYERS)
def test_the_packages_imported_are_this_repositorys(package: str) -> None:
    """The package index has a `supervisor` of its own."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).parent == ROOT / package
