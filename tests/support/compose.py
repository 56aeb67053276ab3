"""docker-compose.yml of this checkout under whichever engine there is, as a project of the tests' own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support.waiting import wait_for

ROOT: Final = Path(__file__).parents[2]
MISSING: Final = "no container engine here: neither docker with compose, whose daemon answers, nor podman with podman-compose"
_ONE_OF_EACH_IMAGE: Final = ("setup", "etl", "postgres", "balancer")
_ASK_S: Final = 3.0  # between questions that start a Python each
_HOURMARK: Final = "/opt/hourmark/hourmark"


def program() -> tuple[str, ...] | None:
    """What runs compose files here."""
    if shutil.which("docker") and all(_works("docker", *words) for words in (("compose", "version"), ("info",))):
        return "docker", "compose"
    return ("podman-compose",) if shutil.which("podman") and shutil.which("podman-compose") else None


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 0


class Site:
    """A site of its own containers and volumes, which go with it. `env_file`: its size."""

    def __init__(self, command: tuple[str, ...], env_file: Path, log: Path) -> None:
        project = ("-p", f"hourmark-test-{os.getpid()}", "-f", str(ROOT / "docker-compose.yml"))
        self._command = (*command, *project, "--env-file", str(env_file))
        self._log, self.size = log, env_file

    def __enter__(self) -> Self:
        try:
            self._run("build", *_ONE_OF_EACH_IMAGE, seconds=1800)
            self._run("up", "-d", seconds=600)
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._run("logs", "--tail", "200", seconds=120)
        self._down()

    def buckets(self) -> list[dict[str, Any]]:
        """As `hourmark bucket ls` has them; none where it cannot be asked yet."""
        done = self._asked("exec", "-T", "etl", _HOURMARK, "bucket", "ls", "--json")
        rows: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
        return rows

    def exec(self, service: str, *command: str) -> str:
        """What a command in a container says; it must end well."""
        done = self._asked("exec", "-T", service, *command)
        assert done.returncode == 0, f"{command} in {service}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def operator(self, *arguments: str, stdin: str) -> subprocess.CompletedProcess[str]:
        """A command of Hourmark where the log files are."""
        command = (*self._command, "--profile", "tools", "run", "--rm", "-T", "operator", *arguments)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)

    def stop(self, service: str) -> None:
        """End a container as its engine does."""
        self._run("stop", service, seconds=60)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Until it holds."""
        wait_for(condition, f"{what} (see {self._log})", seconds, _ASK_S)

    def _asked(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = (*self._command, *arguments)
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False
        )

    def _run(self, *arguments: str, seconds: float) -> None:
        with self._log.open("ab") as log:
            done = subprocess.run(
                (*self._command, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=seconds,
                cwd=ROOT,
                check=False,
            )
        assert done.returncode == 0, f"compose {' '.join(arguments)} failed; see {self._log}"

    def _down(self) -> None:
        self._run("--profile", "*", "down", "-v", "-t", "10", seconds=300)
