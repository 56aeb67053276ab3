"""docker-compose.yml of this checkout under whichever engine there is, as a project of the tests'
own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support.waiting import wait_for

ROOT: Final = Path(__file__).parents[2]
MISSING: Final = (
    "no container engine here: neither docker with compose, whose daemon answers, nor podman "
    "with podman-compose"
)
_BUILD_S: Final = 1800.0
_ASK_S: Final = 3.0  # between questions that start a Python each
_ANSWER_S: Final = 600.0  # beside other work; a healthy engine answers in a second
HOURMARK: Final = "/opt/hourmark/hourmark"


def program() -> tuple[str, ...] | None:
    """What runs compose files here."""
    if shutil.which("docker") and all(
        _works("docker", *words) for words in (("compose", "version"), ("info",))
    ):
        return "docker", "compose"
    return (
        ("podman-compose",) if shutil.which("podman") and shutil.which("podman-compose") else None
    )


def _works(*command: str) -> bool:
    return (
        subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, check=False
        ).returncode
        == 0
    )


def built(command: tuple[str, ...], services: tuple[str, ...], log: Path) -> None:
    """The images of these services, as this checkout stands."""
    _logged((*command, "build", *services), log, _BUILD_S)


def _logged(command: tuple[str, ...], log: Path, seconds: float) -> None:
    """Run it to a good end; what it says is in `log`."""
    with log.open("ab") as said:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            timeout=seconds,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 0, f"{' '.join(command)} failed; see {log}"


class Site:
    """A site of its own containers and volumes, which go with it. `env_file`: its size."""

    def __init__(self, command: tuple[str, ...], env_file: Path, log: Path) -> None:
        self._project = f"hourmark-test-{os.getpid()}"
        files = ("-f", str(ROOT / "docker-compose.yml"), "--env-file", str(env_file))
        self._command = (*command, "-p", self._project, *files)
        self._log, self.size = log, env_file

    def __enter__(self) -> Self:
        try:
            # As without images: the same builds in the same order, of this checkout as it is.
            self._run("up", "-d", "--build", seconds=_BUILD_S + 600)
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._keep_logs()
        self._down()

    def buckets(self) -> list[dict[str, Any]]:
        """As `hourmark bucket ls` has them; none where it cannot be asked yet."""
        done = self._asked("exec", "-T", "etl", HOURMARK, "bucket", "ls", "--json")
        rows: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
        return rows

    def exec(self, service: str, *command: str) -> str:
        """What a command in a container says; it must end well."""
        done = self._asked("exec", "-T", service, *command)
        assert done.returncode == 0, (
            f"{command} in {service}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
        return done.stdout

    def ends_well(self, service: str, *command: str) -> bool:
        """Whether a command in a container does."""
        return self._asked("exec", "-T", service, *command).returncode == 0

    def operator(self, *arguments: str, stdin: str) -> subprocess.CompletedProcess[str]:
        """A command of Hourmark where the log files are."""
        command = (
            *self._command,
            "--profile",
            "tools",
            "run",
            "--rm",
            "-T",
            "operator",
            *arguments,
        )
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            cwd=ROOT,
            check=False,
        )

    def said(self, service: str) -> str:
        """The log of its container."""
        return self._engine("logs", self._container(service), errors=subprocess.STDOUT)

    def stop(self, service: str) -> None:
        """End a container as its engine does."""
        self._run("stop", service, seconds=_ANSWER_S)

    def kill(self, service: str) -> None:
        """Its process ends at once, as with its machine; `start` brings it back."""
        self._engine("kill", self._container(service))

    def start(self, service: str) -> None:
        """One that was stopped or killed."""
        self._run("start", service, seconds=_ANSWER_S)

    @contextlib.contextmanager
    def cut_off(self, service: str) -> Iterator[None]:
        """It runs, and nobody can reach it, nor it anybody."""
        container = self._container(service)
        (network,) = json.loads(
            self._engine("inspect", "--format", "{{json .NetworkSettings.Networks}}", container)
        )
        self._engine("network", "disconnect", network, container)
        try:
            yield
        finally:
            self._engine("network", "connect", "--alias", service, network, container)

    def _container(self, service: str) -> str:
        (container,) = self._containers(f"com.docker.compose.service={service}")
        return container

    def _containers(self, *labels: str) -> list[str]:
        """Names of the project's."""
        wanted = (f"com.docker.compose.project={self._project}", *labels)
        filters = [word for label in wanted for word in ("--filter", f"label={label}")]
        return self._engine("ps", "--all", "--format", "{{.Names}}", *filters).split()

    def _keep_logs(self) -> None:
        """Each container's in a file of its own, beside the log."""
        for container in self._containers():
            text = self._engine("logs", "--tail", "1000", container, errors=subprocess.STDOUT)
            (self._log.parent / f"{container.removeprefix(self._project)[1:]}.log").write_text(text)

    def _engine(self, *arguments: str, errors: int = subprocess.PIPE) -> str:
        """What docker or podman itself says."""
        command = (self._command[0].removesuffix("-compose"), *arguments)
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {(done.stderr or done.stdout)[-2000:]}"
        return done.stdout

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Until it holds."""
        wait_for(condition, f"{what} (see {self._log})", seconds, _ASK_S)

    def _asked(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = (*self._command, *arguments)
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            cwd=ROOT,
            check=False,
        )

    def _run(self, *arguments: str, seconds: float) -> None:
        _logged((*self._command, *arguments), self._log, seconds)

    def _down(self) -> None:
        self._run("--profile", "*", "down", "-v", "-t", "10", seconds=_ANSWER_S)
