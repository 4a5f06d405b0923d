"""The one shape that both of htrflow's APIs are given, and the choice between them by what is importable.

Never by version: both call themselves 0.2.6.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from actors.gpu.exports import Exports
from actors.gpu.tree import Tree
from actors.gpu.wraps import Watch

log = logging.getLogger(__name__)

ADAPTERS = (("document", "htrflow.document"), ("collection", "htrflow.volume"))
"""Names of the APIs, each with a module that only it has; the first found is used."""


class NoApi(Exception):
    """The installed htrflow is neither of the two that are known, or lacks something they have."""


class Engine(Protocol):
    """A loaded pipeline. `capacity` pages may be transcribed at once; `steps` are htrflow's own."""

    capacity: int
    steps: list[Any]

    def start(self) -> None:
        """Put the wraps in place; from here on pages may come."""

    def smoke_input(self, rgb: npt.NDArray[np.uint8]) -> Any:
        """`rgb` (height, width, 3) as the models take an image."""

    def smoke_settings(self, step: Any) -> dict[str, Any]:
        """What the step passes to its model with each batch."""

    def unfit(self, step: Any) -> str | None:
        """Why the step's model can never work, if that can be seen without calling it."""

    def transcribe(self, page: int, pixels: npt.NDArray[np.uint8]) -> Exports:
        """Run the pipeline on the page that the calling thread has entered; afterwards nothing holds `pixels`."""

    def dead_threads(self) -> list[str]:
        """The steps whose worker thread has ended, which none ever should."""


class Adapter(Protocol):
    """The module `document_api` or `collection_api`."""

    def step_names(self) -> list[str]: ...

    def load(self, steps: list[dict[str, Any]], pipeline: Path, watch: Watch, capacity: int) -> Engine: ...


def choose() -> tuple[str, Any]:
    """The name and the adapter module of the htrflow that is installed; imports torch and all else on the
    way.

    Raises:
        NoApi: htrflow is missing, is another one, or lacks a symbol that is used (which one is in the
        message).
    """
    for name, module in ADAPTERS:
        try:
            if importlib.util.find_spec(module) is None:
                continue
        except ImportError:
            continue
        try:
            return name, importlib.import_module(f"actors.gpu.{name}_api")
        except (ImportError, AttributeError) as e:
            raise NoApi(f"the installed htrflow has the {name} API but cannot be used: {e}") from e
    known = " nor ".join(module for _, module in ADAPTERS)
    raise NoApi(f"the installed htrflow is not one that is known: it has neither {known}")


def report_dropped(name: str, tree: Tree) -> None:
    """Say that made-up text was dropped."""
    if tree.dropped and not tree.regions:
        log.info("page %s: nothing was segmented; the text read from the whole page is dropped", name)
    elif tree.dropped:
        log.info(
            "page %s: no line was found in %d regions; the text read from each as a whole is dropped",
            name,
            tree.dropped,
        )
