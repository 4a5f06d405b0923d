"""What is being done, on the terminal. Registers every document for ever."""

import itertools
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

_tasks: dict[Any, int] = {}
_exports: defaultdict[Any, list[str]] = defaultdict(list)
_steps: defaultdict[Any, list[Any]] = defaultdict(list)


class _Display:
    def __init__(self) -> None:
        self.console = SimpleNamespace(quiet=False)
        self.tasks: dict[int, dict[str, Any]] = {}
        self.live = True
        self._numbers = itertools.count()

    def stop(self) -> None:
        self.live = False

    def add_task(self, description: str, **fields: Any) -> int:
        number = next(self._numbers)
        self.tasks[number] = {"description": description, **fields}
        return number

    def update(self, task: int, **fields: Any) -> None:
        self.tasks[task].update(fields)
        if self.live:
            print(f"\r{self.tasks[task]}", end="", flush=True)

    def remove_task(self, task: int) -> None:
        self.tasks.pop(task)

    def print(self, text: str) -> None:
        if not self.console.quiet:
            print(text, flush=True)


_progress = _Display()


def update(document: Any, **fields: Any) -> None:
    if document not in _tasks:
        _tasks[document] = _progress.add_task("page", filename=document.image_name)
    _progress.update(_tasks[document], **fields)


def step(document: Any, step: Any) -> None:
    update(document, status=str(step))
    _steps[document].append(step)


def get_steps(document: Any) -> list[Any]:
    return _steps[document]


def register_export(document: Any, path: str) -> None:
    _exports[document].append(path)


def done(document: Any) -> None:
    _progress.print(f"{document.image_name}: done, {len(_exports[document])} files written")
    update(document, visible=False)
