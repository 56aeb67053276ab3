"""Spark's daemon of Python workers on the driver's machine (`spark.python.daemon.module`): what
tasks need is loaded once, before it forks them, and not by each of them.

For other workers than those of tasks, which Spark asks of the source, a daemon of their own is
started: they need none of it.
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback
from typing import Final

from pyspark.daemon import manager

from hourmark_etl.reused import spare_loaded

_TASKS: Final = "pyspark.worker"
# Staging and closing, as tasks do it; pandas, because Arrow asks for it before it makes a column of
# a list.
_MODULES: Final = ("pandas", "hourmark_etl.staging.planner", "hourmark_etl.closing.engine")


def main(arguments: list[str]) -> None:
    """`arguments`: as Spark gives them, the workers' module first."""
    if arguments[:1] == [_TASKS]:
        try:
            for module in _MODULES:
                importlib.import_module(module)
            gc.collect()
            spare_loaded()
        # a task says it better: of a daemon that ends Spark knows no reason
        except Exception:  # noqa: BLE001
            traceback.print_exc()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
