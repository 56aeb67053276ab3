"""Spark's daemon of Python workers, the steps of `crash` wrapped before it forks
(`spark.python.daemon.module`).
"""

from __future__ import annotations

from pyspark import daemon
from tests.support import crash

if __name__ == "__main__":
    crash.install()
    daemon.manager()  # type: ignore[no-untyped-call]
