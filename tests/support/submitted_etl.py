"""The ETL as `spark-submit` starts it on a standalone cluster, its driver here: what is killed, is
started again by the test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.crash import ORDER_VARIABLE
from tests.support.etl import EtlRun
from tests.support.spark_cluster import SparkCluster

from hourmark_infra.java.find import java_executable

_ROOT: Final = Path(__file__).parents[2]
# Sizes that suit a test, and loopback as the only network.
_SIZES: Final[Mapping[str, str]] = {
    "spark.driver.memory": "640m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "480m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
}


class SubmittedEtl(EtlRun):
    """From a working folder of its own, which holds all that the driver keeps.

    `conf`: more for Spark, over what suits a test.
    """

    killed = 128 + signal.SIGKILL  # spark-submit tells of its Python as a shell does

    def __init__(
        self,
        cluster: SparkCluster,
        /,
        *arguments: Any,
        conf: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self._cluster, self._conf = cluster, {**_SIZES, **(conf or {})}
        if self._crash_order is not None:
            self._crash_order = (
                cluster.seen / f"crash-order-{uuid.uuid4().hex}.json"
            )  # executors look for it too
            dying = {"PYTHONPATH": str(_ROOT), ORDER_VARIABLE: str(self._crash_order)}
            self._environment |= dying
            self._conf |= {f"spark.executorEnv.{name}": value for name, value in dying.items()}
            self._conf["spark.python.daemon.module"] = "tests.support.crashing_workers"

    def command(self) -> list[str]:
        """As docs/how-to/spark-standalone.md has it."""
        job = "etl/job.py" if self._crash_order is None else "tests/support/crashing_job.py"
        settings = [
            word for name, value in self._conf.items() for word in ("--conf", f"{name}={value}")
        ]
        submit = str(Path(sys.executable).parent / "spark-submit")
        return [
            submit,
            "--master",
            self._cluster.url,
            *settings,
            str(_ROOT / job),
            "--config",
            str(self.file),
        ]

    def start(self) -> None:
        """Start the driver in its own folder."""
        assert self._process is None
        self._starts += 1
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | self._environment
        environment |= {
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(java_executable().parents[1]),
            "TMPDIR": str(self.file.parent),
            "SPARK_LOCAL_DIRS": str(self.file.parent),
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.file.parent,
                stderr=log,
                stdout=log,
                env=environment,
                start_new_session=True,
            )
