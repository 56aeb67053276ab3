"""The role `whole`: its ports are handed on both ways, and its settings load."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.ports import free_port

from hourmark.errors import ConfigError
from hourmark_infra.containers.settings import TYPES
from hourmark_infra.containers.whole_stack import (
    parse_published_ports,
    run_with_relays,
    whole_stack_settings,
)

ROOT = Path(__file__).parents[4]
OUTSIDE = "127.0.0.2"  # as a container's own address
# Answers once, with what it was sent to the end, backwards; then waits for its own end.
SERVER = """
import signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as reader:
        connection.sendall(reader.read()[::-1])
signal.sigwait({signal.SIGTERM})
raise SystemExit(7)
"""


async def call(address: str, port: int, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(body)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_bytes_and_ends_are_handed_on_both_ways() -> None:
    async def scene(port: int) -> tuple[bytes, int]:
        running = asyncio.create_task(
            run_with_relays((sys.executable, "-c", SERVER, str(port)), OUTSIDE, [port])
        )
        while True:
            try:
                if said := await call(OUTSIDE, port, b"abc" * 100_000):
                    break
            except ConnectionError:  # neither relay nor server are there at once
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)  # as an engine ends a container: the command gets it
        return said, await running

    said, code = asyncio.run(scene(free_port()))
    assert said == b"cba" * 100_000 and code == 7


def test_where_nothing_listens_yet_who_calls_is_refused_and_not_left_waiting() -> None:
    async def scene(port: int) -> int:
        running = asyncio.create_task(
            run_with_relays((sys.executable, "-c", "input()"), OUTSIDE, [port])
        )
        with pytest.raises(ConnectionError):
            while True:
                await asyncio.sleep(0.01)
                if running.done() or await call(OUTSIDE, port, b"x") == b"":
                    raise ConnectionError
        return await running

    assert asyncio.run(scene(free_port())) == 1, "the command's own exit code"


def test_ports_are_of_servers_that_there_are() -> None:
    assert parse_published_ports({"WHOLE_PORTS": '{"edge-1": 23001, "service": 23002}'}) == {
        "edge-1": 23001,
        "service": 23002,
    }
    assert parse_published_ports({}) == {}


@pytest.mark.parametrize(
    "text",
    ["[1]", "{", '{"edge-9": 1}', '{"edge-1": "1"}', '{"edge-1": 0}', '{"edge-1": true}', "7"],
)
def test_other_ports_are_refused_by_the_variables_name(text: str) -> None:
    with pytest.raises(ConfigError, match="WHOLE_PORTS"):
        parse_published_ports({"WHOLE_PORTS": text})


def test_each_source_of_the_types_is_followed(tmp_path: Path) -> None:
    declared = tomllib.loads((ROOT / "examples" / "types" / "sources.toml").read_text())["source"]
    tailed = whole_stack_settings(ROOT / "examples" / "types", 60, 4096)["tailer"]["sources"]
    assert (
        tailed
        == [{"name": s["name"], "paths": [f"/var/log/app/{s['name']}.log"]} for s in declared]
        and tailed
    )
    assert whole_stack_settings(tmp_path, 60, 4096)["tailer"]["sources"] == [], (
        "types that no line makes need no sources"
    )
    assert str(TYPES).endswith("examples/types")
