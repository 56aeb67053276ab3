"""A whole stack in one container, for tests of those who use Hourmark: the role `whole`, which
`hourmark.testing` starts.

It is `hourmark run`: servers and components on the container's loopback, where nothing asks who
calls. The ports that tests use are handed on from the container's own address to the same numbers
on loopback: a broker names itself `127.0.0.1:<port>`, which is right within the container, and on
the machine at whose loopback the engine publishes the port.

WHOLE_PORTS          JSON: of servers of `hourmark up`, and of the service
WHOLE_CLUSTERS       of Kafka: 1, or 2 with a mirror between them
WHOLE_TYPES          the folder of types; each of its sources is followed as /var/log/app/<source>.log
SITE_BUCKET_SECONDS  length of buckets
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
    """Run until it is told to end; the exit code of `hourmark run`."""
    ports = parse_published_ports(environment)
    clusters: Clusters = 2 if environment.get("WHOLE_CLUSTERS") == "2" else 1
    LocalStack.load_or_make(
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
    """By server. ConfigError where one is none of the stack's, or has no port."""
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
        f"WHOLE_PORTS = {text!r}: allowed is a JSON object of ports by name: "
        f"{', '.join(PORT_NAMES)}"
    )


def whole_stack_settings(types: Path, bucket_seconds: int, files: int) -> dict[str, dict[str, Any]]:
    """What differs from the local stack's: quick reports and small batches, as a test waits for
    each bucket.
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
    """Run the command, and meanwhile hand on what connects to one of the ports at this address; the
    command's exit code.
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
    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            beyond, to_beyond = await asyncio.open_connection("127.0.0.1", port)
        except OSError:  # it does not listen yet: who calls sees what a server that is down shows
            writer.transport.abort()
            return
        await asyncio.gather(_copy_stream(reader, to_beyond), _copy_stream(beyond, writer))
        for each in (writer, to_beyond):
            each.close()

    return await asyncio.start_server(hand_on, address, port)


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one side ends; the end itself is handed on, too."""
    try:
        while piece := await reader.read(_CHUNK_BYTES):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
