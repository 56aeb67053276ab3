"""A real YARN beside the stack's HDFS: a ResourceManager and NodeManagers as processes, from jars
locked by digest.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Final, Self

import psutil
from tests.support.ports import free_port
from tests.support.waiting import wait_for

from hourmark_infra.jars.cache import IvyFetch, cache_root, ensure_jars, print_progress
from hourmark_infra.jars.lockfile import read_lock
from hourmark_infra.java.find import java_executable
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.hadoop import LOG4J, render_site

JARS_LOCK: Final = Path(__file__).with_name("yarn_jars.lock")
_RESOURCEMANAGER: Final = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODEMANAGER: Final = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_STARTING_S: Final = 120.0
_ENDED: Final = frozenset(("FINISHED", "FAILED", "KILLED"))
USER: Final = "root"  # as the stack's HDFS has it
_RM_PORTS: Final = (
    "address",
    "scheduler.address",
    "resource-tracker.address",
    "admin.address",
    "webapp.address",
)
_SETTINGS: Final = {
    "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler",
    "yarn.resourcemanager.am.max-attempts": "100",
    "yarn.scheduler.minimum-allocation-mb": "64",
    "yarn.nm.liveness-monitor.expiry-interval-ms": "60000",
    "yarn.nodemanager.heartbeat.interval-ms": "200",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.delete.debug-delay-sec": "3600",  # logs of drivers that died
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
}


class YarnCluster:
    """`nodes` NodeManagers of `memory_mb` each for containers; logs stay in `folder`.

    HADOOP_CONF_DIR takes `settings`.
    """

    def __init__(self, stack: LocalStack, folder: Path, *, nodes: int, memory_mb: int) -> None:
        self.folder, self._nodes, self._memory_mb = folder, nodes, memory_mb
        self.settings = self._new_folder("settings")
        self._stack_settings = stack.layout.settings / "hadoop"
        self._rm = {name: f"127.0.0.1:{free_port()}" for name in _RM_PORTS}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._java = java_executable()

    def __enter__(self) -> Self:
        jars = ensure_jars(
            "yarn",
            read_lock("yarn", JARS_LOCK),
            cache_root() / "jars",
            IvyFetch(java_executable),
            print_progress,
        )
        try:
            self._write_settings(self.settings, {})
            self._start("resourcemanager", _RESOURCEMANAGER, self.settings, jars)
            for number in range(self._nodes):
                self._start_node(f"node-{number}", jars)
            wait_for(
                self._complete, f"all nodes are there (see {self.folder})", _STARTING_S, pause_s=0.2
            )
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill_all()

    def application(self, app_id: str) -> dict[str, Any]:
        """What the ResourceManager says of it."""
        found: dict[str, Any] = self._ask(f"apps/{app_id}")["app"]
        return found

    def running(self, app_id: str) -> bool:
        """Whether it has not ended, in whichever attempt."""
        return self.application(app_id)["state"] not in _ENDED

    def attempts(self, app_id: str) -> int:
        """How often its driver was started."""
        return len(self._ask(f"apps/{app_id}/appattempts")["appAttempts"]["appAttempt"])

    def end(self, app_id: str) -> None:
        """As `yarn application -kill`."""
        if self.running(app_id):
            self._ask(f"apps/{app_id}/state", {"state": "KILLED"})
            wait_for(
                lambda: not self.running(app_id) and not self.processes(),
                f"{app_id} ends",
                _STARTING_S,
                pause_s=0.2,
            )

    def processes(self) -> list[psutil.Process]:
        """All that runs in containers, also what a container has left behind: by their working
        folder.
        """
        return [p for p in psutil.process_iter() if _within(p, self.folder / "containers")]

    def log_of(self, app_id: str) -> str:
        """What all its drivers said."""
        logs = sorted(
            (self.folder / "containers").glob(f"node-*/logs/{app_id}/*_000001/std*"),
            key=lambda p: p.stat().st_mtime,
        )
        return "".join(log.read_text(errors="replace") for log in logs)

    def _complete(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._ask("metrics")["clusterMetrics"]["activeNodes"] == self._nodes)
        assert all(process.poll() is None for process in self._processes), (
            f"a server ended (see {self.folder})"
        )
        return False

    def _ask(self, path: str, put: dict[str, str] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://{self._rm['webapp.address']}/ws/v1/cluster/{path}?user.name={USER}",
            data=None if put is None else json.dumps(put).encode(),
            method="GET" if put is None else "PUT",
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def _start_node(self, name: str, jars: Path) -> None:
        containers = self.folder / "containers" / name
        ports = {
            f"yarn.nodemanager.{of}address": f"127.0.0.1:{free_port()}"
            for of in ("", "localizer.", "webapp.")
        }
        own = {
            **ports,
            "yarn.nodemanager.local-dirs": str(containers / "local"),
            "yarn.nodemanager.log-dirs": str(containers / "logs"),
            "yarn.nodemanager.resource.memory-mb": str(self._memory_mb),
            "yarn.nodemanager.resource.cpu-vcores": "8",
        }
        settings = self._new_folder(f"{name}-settings")
        self._write_settings(settings, own)
        self._start(name, _NODEMANAGER, settings, jars)

    def _write_settings(self, folder: Path, own: dict[str, str]) -> None:
        for name in ("core-site.xml", "hdfs-site.xml"):
            shutil.copy(self._stack_settings / name, folder / name)
        addresses = {f"yarn.resourcemanager.{name}": address for name, address in self._rm.items()}
        (folder / "yarn-site.xml").write_text(render_site({**_SETTINGS, **addresses, **own}))
        (folder / "log4j.properties").write_text(LOG4J)

    def _start(self, name: str, main_class: str, settings: Path, jars: Path) -> None:
        options = [
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
        ]
        command = [
            str(self._java),
            *options,
            f"-Dhadoop.log.dir={self.folder}",
            "-cp",
            f"{settings}:{jars}/*",
            main_class,
        ]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._new_folder(f"{name}-home")),
            "USER": USER,
            "HADOOP_USER_NAME": USER,
            "JAVA_HOME": str(self._java.parents[1]),
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)
            )

    def _kill_all(self) -> None:
        for started in self._processes:
            started.kill()
            started.wait()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for unpacked in (self.folder / "containers").glob("*/local"):  # gigabytes; the logs stay
            shutil.rmtree(unpacked, ignore_errors=True)

    def _new_folder(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir()
        return made


def _within(process: psutil.Process, folder: Path) -> bool:
    try:
        return Path(process.cwd()).is_relative_to(folder)
    except (psutil.Error, OSError):
        return False
