"""The ETL in cluster mode on YARN: its driver runs in a container, from a packed environment, and
YARN starts it again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark
from tests.support.crash import ORDER_VARIABLE, CrashOrder
from tests.support.etl import EtlRun
from tests.support.yarn_cluster import USER, YarnCluster

from hourmark_infra.java.find import java_executable

_ROOT: Final = Path(__file__).parents[2]
_SUBMIT_S: Final = 600
_ASK_S: Final = 2.0
_SPARK: Final = Path(pyspark.__file__).parent
_PYTHON: Final = "./environment/bin/python"
DOCUMENTED: Final[Mapping[str, str]] = {  # in docs/how-to/yarn.md
    "spark.pyspark.python": _PYTHON,
    "spark.yarn.jars": f"local:{_SPARK}/jars/*",
    "spark.yarn.maxAppAttempts": "100",
    "spark.yarn.am.attemptFailuresValidityInterval": "1h",
    "spark.executor.failuresValidityInterval": "1h",
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.executor.cores": "1",
    "spark.executor.instances": "2",
}
_OWN: Final[Mapping[str, str]] = {  # sizes that suit a test, and loopback as the only network
    "spark.driver.memory": "640m",
    "spark.driver.memoryOverhead": "640m",
    "spark.executor.memory": "480m",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
}


class YarnEtl(EtlRun):
    """`environment`: the archive of `tools.pack_environment`.

    The ledger must be one that every node reaches: PostgreSQL.
    """

    def __init__(
        self,
        cluster: YarnCluster,
        environment: Path,
        /,
        *arguments: Any,
        conf: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self._cluster, self._packed, self._conf = (
            cluster,
            environment,
            {**DOCUMENTED, **_OWN, **(conf or {})},
        )
        self._app_id: str | None = None
        self._asked_s = 0.0
        if self._crash_order is not None:
            self._crash_order = cluster.folder / f"crash-order-{uuid.uuid4().hex}.json"
            for name, value in {
                "PYTHONPATH": str(_ROOT),
                ORDER_VARIABLE: str(self._crash_order),
            }.items():
                self._conf |= {
                    f"spark.yarn.appMasterEnv.{name}": value,
                    f"spark.executorEnv.{name}": value,
                }
            self._conf["spark.python.daemon.module"] = "tests.support.crashing_workers"

    def command(self) -> list[str]:
        """As docs/how-to/yarn.md has it."""
        job = "etl/job.py" if self._crash_order is None else "tests/support/crashing_job.py"
        settings = [
            word for name, value in self._conf.items() for word in ("--conf", f"{name}={value}")
        ]
        return [
            str(Path(sys.executable).parent / "spark-submit"),
            "--master",
            "yarn",
            "--deploy-mode",
            "cluster",
            "--archives",
            f"{self._packed}#environment",
            "--files",
            str(self.file),
            *settings,
            str(_ROOT / job),
            "--config",
            self.file.name,
        ]

    def start(self) -> None:
        """Submit it; YARN has it from then on."""
        assert self._app_id is None
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment |= {
            "HADOOP_CONF_DIR": str(self._cluster.settings),
            "HADOOP_USER_NAME": USER,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": str(java_executable().parents[1]),
            "SPARK_HOME": str(_SPARK),
        }
        done = subprocess.run(
            self.command(),
            cwd=self.file.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SUBMIT_S,
        )
        self.log.write_text(done.stdout + done.stderr)
        found = re.search(r"Submitted application (application_\w+)", done.stderr)
        assert done.returncode == 0 and found, self.log
        self._app_id = found[1]

    @property
    def app_id(self) -> str:
        """As YARN names it."""
        assert self._app_id is not None
        return self._app_id

    def running(self) -> bool:
        """Whether YARN has not given it up."""
        return self._app_id is not None and self._cluster.running(self._app_id)

    def kill(self) -> None:
        """End it in YARN, all its attempts and executors."""
        self._cluster.end(self.app_id)
        self._app_id = None

    def revive(self) -> None:
        """YARN is who starts it again; all that is to be seen, and seldom asked, is that it has not
        given up.
        """
        if time.monotonic() - self._asked_s > _ASK_S:
            self._asked_s = time.monotonic()
            assert self.running(), (
                f"YARN gave it up: {self._cluster.application(self.app_id)['diagnostics']}"
            )

    def took(self, crash: CrashOrder) -> bool:
        """Whether the order was carried out."""
        assert self._crash_order is not None
        return not self._crash_order.exists()

    def logged(self, text: str) -> bool:
        """Whether a driver said so, in whichever attempt."""
        return text in self._cluster.log_of(self.app_id)

    def masters(self) -> list[psutil.Process]:
        """The JVM of its driver's container; the driver is a child of it."""
        return self._running("org.apache.spark.deploy.yarn.ApplicationMaster")

    def executors(self) -> list[psutil.Process]:
        """Those that are alive, on whichever node."""
        return self._running("org.apache.spark.executor.YarnCoarseGrainedExecutorBackend")

    def drivers(self) -> list[psutil.Process]:
        """The Python processes of its drivers, also such whose JVM is gone."""
        return [
            p
            for p in self._cluster.processes()
            if "job.py" in " ".join(_command(p)[1:3]) and _PYTHON[1:] in _command(p)[0]
        ]

    def _running(self, main_class: str) -> list[psutil.Process]:
        return [
            p
            for p in self._cluster.processes()
            if main_class in _command(p) and _command(p)[0].endswith("/java")
        ]

    def __exit__(self, *_: object) -> None:
        if self._app_id is not None:
            self.kill()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline() or [""]
    except psutil.Error:
        return [""]
