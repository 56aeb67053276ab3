"""The container in which a test stack runs."""

from __future__ import annotations

import json
import random
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from docker.errors import ImageNotFound
from testcontainers.core.container import DockerContainer

from hourmark.clock import SystemClock
from hourmark.errors import Unavailable, UsageError
from hourmark.testing.engine import engine
from hourmark.testing.handle import Stack

IMAGE: Final = f"hourmark-java:{version('hourmark')}"
BROKERS: Final = ("edge-1", "edge-2", "edge-3")
_NAMES: Final = (*BROKERS, "registry", "service")
_TYPES: Final = "/var/lib/hourmark/types"
_PORT_RANGE: Final = range(20_000, 32_000)  # below the ports of outgoing connections
_PAUSE_S: Final = 0.5
_REQUEST_TIMEOUT_S: Final = 5.0
_LOG_BYTES: Final = 4000


@contextmanager
def stack(
    types: Path | None = None,
    *,
    clusters: Literal[1, 2] = 1,
    image: str = IMAGE,
    seconds: float = 300.0,
) -> Iterator[Stack]:
    """Start a complete Hourmark stack in a container, and remove it at the end of the block.

    The block starts when the service accepts events. Buckets are one minute long.

    Args:
        types: Folder of declarations, as for `hourmark types apply`. Default: examples/types.
        clusters: Number of Kafka clusters: 1, or 2 with a mirror between them.
        image: Name of the container image, which must exist on this machine.
        seconds: Time limit for the start, in seconds.

    Yields:
        The running stack.

    Raises:
        NoEngine: There is no container engine.
        UsageError: The folder contains no declarations.
        Unavailable: The image does not exist, or the stack is not ready in time. In the second
            case, the message contains the end of its log.
    """
    with engine(), StackContainer(image, types, clusters) as container:
        started = Stack(
            kafka=",".join(f"127.0.0.1:{container.published[name]}" for name in BROKERS),
            registry_url=f"http://127.0.0.1:{container.published['registry']}/apis/ccompat/v7",
            service_url=f"http://127.0.0.1:{container.published['service']}",
            run=container.run,
        )
        container.wait_ready(f"{started.service_url}/readyz", seconds)
        yield started


class StackContainer(DockerContainer):
    """The container of a test stack: Kafka, the schema registry and all components of Hourmark.

    Args:
        image: Name of the container image.
        types: Folder of type declarations; None for the example types.
        clusters: Number of Kafka clusters: 1, or 2 with a mirror between them.

    Attributes:
        published: Maps each server name to its port. The port number is the same inside and outside
            of the container. It is published only on the loopback address.
    """

    def __init__(self, image: str, types: Path | None, clusters: int) -> None:
        super().__init__(image, command="whole")
        self.published = free_ports()
        for port in self.published.values():
            # Typed as a number, but passed to docker, which accepts an address too.
            self.ports[f"{port}/tcp"] = ("127.0.0.1", port)  # type: ignore[assignment]
        self.with_envs(
            WHOLE_PORTS=json.dumps(self.published),
            WHOLE_CLUSTERS=str(clusters),
            SITE_BUCKET_SECONDS="60",
        )
        self.with_kwargs(cap_drop=["ALL"], security_opt=["no-new-privileges:true"])
        if types is not None:
            self.with_env("WHOLE_TYPES", _TYPES)
            for name, text in read_type_files(types).items():
                self.with_copy_into_container(text, f"{_TYPES}/{name}", 0o644)

    def start(self) -> StackContainer:
        """Start the container from a local image, and return this object.

        The image is never pulled, because anyone could own its name in a public registry.

        Raises:
            Unavailable: The image does not exist on this machine. The message contains the command
                that builds it.
        """
        try:
            self.get_docker_client().client.images.get(self.image)
        except ImageNotFound as error:
            raise Unavailable(
                f"image {self.image} does not exist on this machine; build it in a checkout of Hourmark "
                "with `docker compose build etl` or `podman-compose build etl`"
            ) from error
        super().start()
        return self

    def run(self, *command: str) -> str:
        """Run a command in the container, and return its standard output.

        Args:
            command: The program and its arguments, which are not interpreted by a shell.

        Raises:
            Unavailable: The exit code of the command is not 0. The message contains the end of its
                output.
        """
        code, (stdout, stderr) = self.get_wrapped_container().exec_run(list(command), demux=True)
        if code != 0:
            output = ((stdout or b"") + (stderr or b"")).decode(errors="replace")
            raise Unavailable(
                f"{' '.join(command)[:200]} failed in the stack's container: {output[-_LOG_BYTES:]}"
            )
        return (stdout or b"").decode()

    def wait_ready(self, url: str, seconds: float) -> None:
        """Wait until a URL of the stack returns the HTTP status 200.

        Args:
            url: URL that returns 200 when the service accepts events.
            seconds: Time limit in seconds.

        Raises:
            Unavailable: The container ended or was not ready in time. The message contains the end
                of its log.
        """
        clock = SystemClock()
        until = clock.monotonic_s() + seconds
        while not _answers(url):
            self.reload()
            if self.status != "running" or clock.monotonic_s() > until:
                what = (
                    f"was not ready after {seconds:g} s"
                    if self.status == "running"
                    else "has ended"
                )
                raise Unavailable(
                    f"the stack in the container {what}; its log ends with:\n{self._log_end()}"
                )
            clock.sleep(_PAUSE_S)

    def _log_end(self) -> str:
        log = self.get_wrapped_container().logs(stdout=True, stderr=True)
        return bytes(log)[-_LOG_BYTES:].decode(errors="replace")


def read_type_files(types: Path) -> dict[str, bytes]:
    """Read the TOML files in a folder of type declarations.

    Args:
        types: The folder; its subfolders are not read.

    Returns:
        A dict that maps file names to contents, in alphabetical order.

    Raises:
        UsageError: The folder contains no TOML file.
    """
    contents = {file.name: file.read_bytes() for file in sorted(types.glob("*.toml"))}
    if not contents:
        raise UsageError(
            f"{types} contains no type declarations; name a folder that `hourmark types check --dir` "
            "accepts"
        )
    return contents


def free_ports() -> dict[str, int]:
    """Choose a random free port on the loopback address for each server of a test stack.

    The ports are not reserved: another process may bind one before it is used.

    Returns:
        A dict that maps each server name to its port.
    """
    with ExitStack() as held:
        drawn = iter(random.SystemRandom().sample(_PORT_RANGE, len(_PORT_RANGE)))
        return {name: next(port for port in drawn if _bind(held, port)) for name in _NAMES}


def _bind(held: ExitStack, port: int) -> bool:
    listener = held.enter_context(closing(socket.socket()))
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def _answers(url: str) -> bool:
    with (
        suppress(OSError, urllib.error.URLError),
        urllib.request.urlopen(url, timeout=_REQUEST_TIMEOUT_S) as answer,  # noqa: S310
    ):
        status: Any = answer.status
        return bool(status == 200)
    return False
