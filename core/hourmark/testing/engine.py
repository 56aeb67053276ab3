"""Detection of the container engine: docker, or podman, whose service has the same API.

The first of these that responds is used. If $DOCKER_HOST is set, the others are not tried.

    $DOCKER_HOST
    /var/run/docker.sock
    $XDG_RUNTIME_DIR/podman/podman.sock, /run/podman/podman.sock    as in systemd's podman.socket
    `podman system service`, on a separate socket                   started here, ends with the tests
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import docker
from docker.errors import DockerException
from testcontainers.core.config import testcontainers_config

from hourmark.errors import Unavailable

_ANSWER_S: Final = 10
_START_S: Final = 30.0
_PAUSE_S: Final = 0.1


class NoEngine(Unavailable):
    """No container engine (Docker or Podman) is installed on this machine, or none responds.

    Install or start one. The fixture `hourmark_stack` skips tests that use it in this case.
    """


@contextmanager
def engine() -> Iterator[None]:
    """Find a container engine, and set `$DOCKER_HOST` to its address for the duration of the block.

    If `$DOCKER_HOST` is set, only this address is tried. Otherwise the sockets of Docker and Podman
    are tried. If none responds, `podman system service` is started for the duration of the block.

    Raises:
        NoEngine: No engine responds.
    """
    with ExitStack() as on_exit:
        address, name = _find_engine(on_exit)
        before, reaper_disabled = os.environ.get("DOCKER_HOST"), testcontainers_config.ryuk_disabled
        os.environ["DOCKER_HOST"] = address
        # The reaper of testcontainers would need podman's socket in a privileged container.
        if "podman" in name:
            testcontainers_config.ryuk_disabled = True
        try:
            yield
        finally:
            testcontainers_config.ryuk_disabled = reaper_disabled
            os.environ.pop("DOCKER_HOST")
            if before is not None:
                os.environ["DOCKER_HOST"] = before


def candidate_sockets(environment: Mapping[str, str]) -> list[Path]:
    """Return the default socket paths of container engines. The sockets may not exist.

    Args:
        environment: Environment variables. If `XDG_RUNTIME_DIR` is set, it determines the path of
            Podman's user socket.

    Returns:
        Paths in the order to try them: Docker first, then Podman.
    """
    runtime = environment.get("XDG_RUNTIME_DIR")
    of_user = [Path(runtime) / "podman" / "podman.sock"] if runtime else []
    return [Path("/var/run/docker.sock"), *of_user, Path("/run/podman/podman.sock")]


def _find_engine(on_exit: ExitStack) -> tuple[str, str]:
    named = os.environ.get("DOCKER_HOST")
    for address in (
        [named]
        if named
        else [f"unix://{path}" for path in candidate_sockets(os.environ) if path.exists()]
    ):
        if name := probe_engine(address):
            return address, name
    if named:
        raise NoEngine(
            f"no container engine responds at DOCKER_HOST={named}; start it, or unset DOCKER_HOST"
        )
    podman = shutil.which("podman")
    if podman is None:
        raise NoEngine(
            "no container engine is available: no socket of docker or podman responds, and podman is "
            "not installed; install docker or podman"
        )
    return on_exit.enter_context(_podman_service(podman)), "podman"


def probe_engine(address: str) -> str:
    """Return the name of the container engine that listens at an address.

    Args:
        address: Address as in `$DOCKER_HOST`, such as `unix:///var/run/docker.sock`.

    Returns:
        The name in lower case, which contains "podman" for Podman. Empty if no engine responds.
    """
    if not _listens(address):
        return ""
    try:
        client = docker.DockerClient(
            base_url=address, timeout=_ANSWER_S
        )  # sends a request for the version
        try:
            version = client.version()
        finally:
            client.close()
    except DockerException:
        return ""
    return " ".join(["engine", *(part["Name"] for part in version.get("Components") or ())]).lower()


def _listens(address: str) -> bool:
    # Checked first, because docker's client leaves its socket open if no process listens.
    scheme, _, path = address.partition("://")
    if scheme != "unix":
        return True
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.connect(path)
        except OSError:
            return False
    return True


@contextmanager
def _podman_service(podman: str) -> Iterator[str]:
    """Run `podman system service` for the duration of the block.

    Args:
        podman: Path of the podman executable.

    Yields:
        The address of the service for `$DOCKER_HOST`.

    Raises:
        NoEngine: The service does not respond within 30 s.
    """
    with tempfile.TemporaryDirectory(prefix="hourmark-podman-") as folder:
        address = f"unix://{folder}/podman.sock"
        with (Path(folder) / "log").open("w+b") as log:
            command = (podman, "system", "service", "--time=0", address)
            service = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                until = time.monotonic() + _START_S
                while not probe_engine(address):
                    if service.poll() is not None or time.monotonic() > until:
                        log.seek(0)
                        raise NoEngine(
                            "`podman system service` does not respond: "
                            f"{log.read()[-1000:].decode(errors='replace')}"
                        )
                    time.sleep(_PAUSE_S)
                yield address
            finally:
                service.terminate()
                service.wait()
