"""A real standalone Spark cluster of local processes.

Where the tests run as root, workers and executors live in a mount namespace in which the driver's
folder is empty: settings, ledger, checkpoint and temporary files are on another machine, as far as
they can tell.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
import pyspark
from tests.support.ports import free_port
from tests.support.waiting import wait_for

from hourmark_infra.java.find import java_executable

_SPARK: Final = Path(pyspark.__file__).parent
_EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_STARTING_S: Final = 300.0  # of a Java on a busy machine


class SparkCluster:
    """A master and workers, from which the folder `hidden` is hidden where `hides` is true; `seen`
    is a folder that is not.

    Memory: 128 MB each, and `memory_mb` for what a worker may give to executors, of which it has
    one for each of its cores.
    """

    def __init__(self, *, workers: int, memory_mb: int, hidden: Path, cores: int = 1) -> None:
        self._workers, self._memory_mb, self._hidden, self._cores = (
            workers,
            memory_mb,
            hidden,
            cores,
        )
        self._folder = Path(tempfile.mkdtemp(prefix="hourmark-spark-"))
        self.seen = self._new_folder("seen")
        self._processes: list[subprocess.Popen[bytes]] = []
        self.hides = os.geteuid() == 0
        self._port = free_port()

    @property
    def url(self) -> str:
        """What --master takes."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill_all()
        if error is None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start_all(self) -> None:
        self._start(
            _MASTER,
            "master",
            ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"],
        )
        wait_for(
            partial(_says, self._folder / "master.log", "New state: ALIVE"),
            f"the master is alive (see {self._folder})",
            _STARTING_S,
        )
        for number in range(self._workers):
            work = self._new_folder(f"worker-{number}")
            limits = [
                "--cores",
                str(self._cores),
                "--memory",
                f"{self._memory_mb}m",
                "--work-dir",
                str(work),
            ]
            self._start(
                _WORKER, work.name, ["--host", "127.0.0.1", "--webui-port", "0", *limits, self.url]
            )
        for number in range(self._workers):
            log = self._folder / f"worker-{number}.log"
            wait_for(
                partial(_says, log, "Successfully registered"),
                f"a worker has registered (see {log})",
                _STARTING_S,
            )

    def executors(self) -> list[psutil.Process]:
        """The executors that are alive, in whichever worker."""
        return [p for p in self._below() if _EXECUTOR in _command(p)]

    def at_work(self) -> list[psutil.Process]:
        """Executors with Python workers: those that were given something to do."""
        return [
            e
            for e in self.executors()
            if any("pyspark.daemon" in _command(c) for c in _children(e))
        ]

    def _kill_all(self) -> None:
        doomed = self._below()
        for started in self._processes:
            started.kill()
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for started in self._processes:
            started.wait()

    def _start(self, main_class: str, name: str, arguments: Sequence[str]) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._new_folder(f"{name}-home")),
            "JAVA_HOME": str(java_executable().parents[1]),
            "SPARK_HOME": str(_SPARK),
            "SPARK_LOCAL_DIRS": str(self._new_folder(f"{name}-local")),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # its port is a fixed one
        }
        command = [str(_SPARK / "bin" / "spark-class"), main_class, *arguments]
        if self.hides:
            hiding = [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                'mount -t tmpfs none "$0" && exec "$@"',
            ]
            command = [*hiding, str(self._hidden), *command]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command, cwd=environment["HOME"], env=environment, stdout=log, stderr=log
                )
            )

    def _new_folder(self, name: str) -> Path:
        made = self._folder / name
        made.mkdir()
        return made

    def _below(self) -> list[psutil.Process]:
        return [
            child
            for p in self._processes
            if p.poll() is None
            for child in _children(psutil.Process(p.pid))
        ]


def _says(log: Path, text: str) -> bool:
    return text in log.read_text()


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _command(process: psutil.Process) -> str:
    try:
        return re.sub(r"\s+", " ", " ".join(process.cmdline()))
    except psutil.Error:
        return ""
