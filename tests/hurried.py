"""`python -m tests.hurried NAME=SECONDS … COMMAND`: batchpod with some of its named limits changed: shortened, so that a
test need not wait a minute for what is due after a minute, or lengthened, so that what waits for one shows. Nothing else
is changed.

A name is a module's constant (`batchpod.services.BEAT_S`) or an entry of a table (`supervisor.lifecycle.WITHIN_S.killing`).
"""

from __future__ import annotations

import importlib
import sys

from batchpod.cli import main


def shorten(setting: str) -> None:
    name, _, value = setting.partition("=")
    module, _, attribute = name.rpartition(".")
    try:
        vars(importlib.import_module(module))[attribute] = float(value)
    except ModuleNotFoundError:
        module, _, table = module.rpartition(".")
        getattr(importlib.import_module(module), table)[attribute] = float(value)


if __name__ == "__main__":
    while "=" in sys.argv[1]:
        shorten(sys.argv.pop(1))
    sys.exit(main())
