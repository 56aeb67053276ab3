"""Kafka's programs for tests that need other servers than the stack's: daemons that are gone
afterwards, and its tools.
"""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster
from hourmark_infra.stack.kafka import render_properties
from hourmark_infra.stack.servers import Programs

HEAP_MB: Final = 300


def new_cluster_id() -> str:
    """As `format` takes it."""
    return uuid.uuid4().hex[:22]


def run_tool(programs: Programs, main: str, *arguments: str) -> str:
    """One of Kafka's command line tools; what it printed."""
    done = subprocess.run(
        [*_java(programs, 128), main, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answers(cluster: KafkaCluster) -> bool:
    """Whether it tells its topics."""
    try:
        Cluster(cluster, "own").names()
    except Unavailable:
        return False
    return True


@contextlib.contextmanager
def own_server(
    programs: Programs,
    folder: Path,
    properties: Mapping[str, str],
    cluster_id: str,
    *format_more: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """A broker or controller of these settings, with its settings and its log in `folder`,
    formatted where that is empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "server.properties"
    settings.write_text(render_properties(properties))
    formatting = (
        "format",
        "--ignore-formatted",
        "-t",
        cluster_id,
        "-c",
        str(settings),
        *format_more,
    )
    run_tool(programs, "kafka.tools.StorageTool", *formatting)
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(
            [*_java(programs, HEAP_MB), "kafka.Kafka", str(settings)], stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def _java(programs: Programs, heap_mb: int) -> list[str]:
    options = [f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [str(programs.java), *options, "-cp", programs.kafka_classpath]
