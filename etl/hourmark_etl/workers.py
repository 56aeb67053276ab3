"""Spark's daemon for Python workers on the driver's machine (`spark.python.daemon.module`).

It imports the modules that tasks need once, before it forks workers, so that not every worker
imports them. Spark starts a separate daemon for workers that do not run tasks; those need none of
these modules.
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback
from typing import Final

from pyspark.daemon import manager

from hourmark_etl.execution.worker_reuse import freeze_loaded_modules

_TASKS: Final = "pyspark.worker"
# Staging and closing, as tasks do it; pandas, because Arrow asks for it before it makes a column of
# a list.
_MODULES: Final = ("pandas", "hourmark_etl.staging.planner", "hourmark_etl.closing.engine")


def main(arguments: list[str]) -> None:
    """Preload modules for tasks and run PySpark's worker daemon until Spark stops it.

    Args:
        arguments: Command-line arguments that Spark passes. The first one is the name of the module
            that each worker runs. Modules are preloaded only if it is `pyspark.worker`.
    """
    if arguments[:1] == [_TASKS]:
        try:
            for module in _MODULES:
                importlib.import_module(module)
            gc.collect()
            freeze_loaded_modules()
        # a task reports it better: Spark does not report why a daemon ended
        except Exception:  # noqa: BLE001
            traceback.print_exc()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
