"""A complete stack in one container: the role `whole`, which `hourmark.testing` starts.

The container executes `hourmark run`, with servers and components on its loopback interface, where
no authentication is needed. Published ports are relayed from the container's address to the same
ports on its loopback interface. Brokers advertise `127.0.0.1:<port>`, which is correct inside the
container and on a machine whose loopback interface publishes the same port.

WHOLE_PORTS          JSON object: published ports by port name (servers and the delivery service)
WHOLE_CLUSTERS       number of Kafka clusters: 1, or 2 with a mirror between them
WHOLE_TYPES          folder of type declarations; each source is read from /var/log/app/<source>.log
SITE_BUCKET_SECONDS  length of a bucket in seconds
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from hourmark.config.toml_text import render_toml
from hourmark.errors import ConfigError
from hourmark.process.durable import write_durably
from hourmark_infra.containers.settings import LOGS, TYPES, connection_limit
from hourmark_infra.stack.control import LocalStack
from hourmark_infra.stack.layout import PORT_NAMES
from hourmark_infra.stack.options import Clusters

_CHUNK_BYTES: Final = 1 << 16


def run_whole_stack(
    home: Path, bucket_seconds: int, environment: Mapping[str, str], files: int
) -> int:
    """Run a complete local stack in this container until it receives SIGTERM or SIGINT.

    The stack consists of Kafka, HDFS and schema registry servers, and of Hourmark's components.

    Args:
        home: The `HOURMARK_HOME` folder, which contains the stack's data and configuration.
        bucket_seconds: Length of a bucket in seconds.
        environment: Names and values of environment variables; `WHOLE_PORTS`, `WHOLE_CLUSTERS` and
            `WHOLE_TYPES` are read.
        files: Maximum number of open files per process, or `resource.RLIM_INFINITY`.

    Returns:
        The exit code of `hourmark run`.

    Raises:
        ConfigError: `WHOLE_PORTS` is not valid.
        UsageError: The existing stack in `home` has a different number of Kafka clusters.
    """
    ports = parse_published_ports(environment)
    clusters: Clusters = 2 if environment.get("WHOLE_CLUSTERS") == "2" else 1
    LocalStack.load_or_create(
        home, clusters=clusters, bucket_seconds=bucket_seconds, preferred_ports=ports
    )
    types = Path(environment.get("WHOLE_TYPES") or TYPES)
    file = home / "whole.toml"
    write_durably(file, render_toml(whole_stack_settings(types, bucket_seconds, files)).encode())
    command = (sys.executable, "-m", "hourmark", "run", "--config", str(file))
    return asyncio.run(
        run_with_relays(command, socket.gethostbyname(socket.gethostname()), ports.values())
    )


def parse_published_ports(environment: Mapping[str, str]) -> dict[str, int]:
    """Parse the environment variable `WHOLE_PORTS`, a JSON object of port names and TCP ports.

    Args:
        environment: Names and values of environment variables.

    Returns:
        Maps port names to TCP ports; empty if the variable is not set.

    Raises:
        ConfigError: The value is not a JSON object, or contains an unknown port name or an invalid
            port.
    """
    text = environment.get("WHOLE_PORTS") or "{}"
    try:
        ports = json.loads(text)
        if ports.keys() <= {*PORT_NAMES} and all(
            type(port) is int and 0 < port < 1 << 16 for port in ports.values()
        ):
            return dict(ports)
    except (ValueError, AttributeError):
        pass
    raise ConfigError(
        f"WHOLE_PORTS = {text!r}: must be a JSON object of ports by name: {', '.join(PORT_NAMES)}"
    )


def whole_stack_settings(types: Path, bucket_seconds: int, files: int) -> dict[str, dict[str, Any]]:
    """Return the settings that override those of a local stack if it runs in a single container.

    Components report more often, and the ETL's micro-batches are shorter than by default, because
    tests wait until buckets are closed.

    Args:
        types: Folder of type declarations. The tailer reads one log file for each declared source.
        bucket_seconds: Length of a bucket in seconds.
        files: Maximum number of open files per process, or `resource.RLIM_INFINITY`.

    Returns:
        Maps each group of the configuration file to its setting names and values.
    """
    declared = types / "sources.toml"
    sources = tomllib.loads(declared.read_text()).get("source", []) if declared.exists() else []
    tailed = [
        {"name": source["name"], "paths": [str(LOGS / f"{source['name']}.log")]}
        for source in sources
    ]
    return {
        "parsing": {"bucket_seconds": bucket_seconds},
        "types": {"dir": str(types)},
        "service": {"report_seconds": 1.0, "connections_max": connection_limit(files)},
        "etl": {"trigger_seconds": 4.0},
        "tailer": {"host_name": "application", "report_seconds": 1.0, "sources": tailed},
    }


async def run_with_relays(command: Sequence[str], address: str, ports: Iterable[int]) -> int:
    """Run a command, and relay TCP connections to the loopback interface until it exits.

    A connection to one of the ports at `address` is relayed to the same port at 127.0.0.1. SIGTERM
    and SIGINT are forwarded to the command.

    Args:
        command: Program and arguments.
        address: IP address on which connections are accepted.
        ports: TCP ports on which connections are accepted.

    Returns:
        The exit code of the command; negative if a signal killed it.

    Raises:
        OSError: The relay cannot listen on one of the ports, or the command cannot be started.
    """
    async with AsyncExitStack() as open_:
        for port in ports:
            await open_.enter_async_context(await _start_relay(address, port))
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, process.send_signal, number)
        return await process.wait()


async def _start_relay(address: str, port: int) -> asyncio.Server:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:  # no server listens yet: the client sees a reset, as from a stopped server
            writer.transport.abort()
            return
        await asyncio.gather(
            _copy_stream(reader, target_writer), _copy_stream(target_reader, writer)
        )
        for each in (writer, target_writer):
            each.close()

    return await asyncio.start_server(relay, address, port)


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # End of file is forwarded too, so that half-closed connections work.
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
