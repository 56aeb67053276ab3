"""Persistent state of a stack in `state.json`, which is replaced atomically and durably.

{"version": 1, "ports": {name: port}, "cluster_ids": {"edge": …, "central": …}, "clusters": 2, "mirror": true,
 "spread": false, "workers": 1, "bucket_seconds": 3600, "jmx": false, "processes": {server: {"pid": …, "started": …}}}
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from hourmark.errors import HourmarkError
from hourmark.process.durable import write_durably
from hourmark_infra.stack.layout import (
    ANY_PORTS,
    CLUSTERS,
    MIRRORS,
    SPREAD,
    StackShape,
    free_ports,
    stack_root,
)
from hourmark_infra.stack.options import Clusters, Workers
from hourmark_infra.stack.process import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """The persistent state of a local stack, stored in `state.json`.

    Attributes:
        ports: Maps port names to TCP ports. A port only changes if another program uses it.
        cluster_ids: Maps the cluster names `edge` and `central` to Kafka cluster IDs.
        processes: Maps server names to their last known processes.
        clusters: Number of Kafka clusters: 2 for an edge and a central cluster, 1 for a single one.
        spread: Whether there are three central brokers and three DataNodes instead of one each.
        workers: Number of MirrorMaker 2 workers.
        mirror: Whether MirrorMaker 2 is one of the servers.
        bucket_seconds: Length of a bucket in seconds.
        jmx: Whether brokers are started with JMX metrics enabled.
        stopped_at_ms: Time of the last `hourmark down`, Unix milliseconds; None if a server was
            started since.
        version: Version of the file format.
    """

    ports: dict[str, int]
    cluster_ids: dict[str, str]
    processes: dict[str, Process]
    clusters: Clusters = 2
    spread: bool = False
    workers: Workers = 1
    mirror: bool = True
    bucket_seconds: int = 3600
    jmx: bool = False
    stopped_at_ms: int | None = None
    version: Literal[1] = 1

    @property
    def shape(self) -> StackShape:
        """Return the number and placement of the servers of this stack.

        The result is derived from `spread` and `workers`.
        """
        return (SPREAD if self.spread else StackShape())._replace(mirrors=MIRRORS[: self.workers])

    def with_process(self, server: str, process: Process | None) -> StackState:
        """Return a copy of the state with a different process for one server.

        Args:
            server: Name of the server.
            process: New process of the server; None to remove the old one.

        Returns:
            The new state, which is not saved. This object is not modified.
        """
        others = {name: known for name, known in self.processes.items() if name != server}
        if process is None:
            return replace(self, processes=others)
        return replace(self, processes={**others, server: process}, stopped_at_ms=None)


_JSON = TypeAdapter(StackState)


def new_state(
    preferred: Mapping[str, int] = ANY_PORTS,
    clusters: Clusters = 2,
    *,
    spread: bool = False,
    workers: Workers = 1,
) -> StackState:
    """Return the initial state of a local stack, with random cluster IDs and free ports.

    A local stack is a set of Kafka, HDFS, schema registry and MirrorMaker 2 servers. The state is
    not saved; call `save_state` to create the stack.

    Args:
        preferred: Maps port names to preferred TCP ports, which are used if they are free.
        clusters: Number of Kafka clusters: 2 (edge and central) or 1.
        spread: Whether the stack has three central brokers and three DataNodes instead of one each.
        workers: Number of MirrorMaker 2 workers.

    Raises:
        Unavailable: No free port was found.
    """
    ports = free_ports(preferred=preferred)
    ids = new_cluster_ids()
    return StackState(
        ports=ports,
        cluster_ids=ids,
        processes={},
        clusters=clusters,
        spread=spread,
        workers=workers,
    )


def new_cluster_ids() -> dict[str, str]:
    """Generate random cluster IDs for the edge and the central Kafka cluster.

    Returns:
        Maps the cluster names `edge` and `central` to IDs. An ID is a UUID in the URL-safe Base64
        format that Kafka's storage tool accepts.
    """
    return {cluster: _kafka_uuid() for cluster in CLUSTERS}


def state_file(home: Path) -> Path:
    return stack_root(home) / "state.json"


def load_state(home: Path) -> StackState | None:
    """Read the state of the local stack (a set of servers) in a `HOURMARK_HOME` folder.

    Args:
        home: The `HOURMARK_HOME` folder, which contains the stack's data and configuration.

    Returns:
        The state; None if the folder contains no stack.

    Raises:
        HourmarkError: The state file cannot be read or is not valid.
    """
    path = state_file(home)
    try:
        return _JSON.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HourmarkError(
            f"{path} cannot be read ({error}); stop the servers of this stack manually, "
            f"remove {path.parent} and run `hourmark up`"
        ) from error


def save_state(home: Path, state: StackState) -> None:
    """Write the state file of a local stack atomically, and flush it to disk.

    An existing file is replaced. If the call is interrupted, the file contains either the old or
    the new state.

    Args:
        home: The `HOURMARK_HOME` folder, which contains the stack's data and configuration.
        state: State to save.
    """
    write_durably(state_file(home), _JSON.dump_json(state, indent=1) + b"\n")


def _kafka_uuid() -> str:
    # Kafka's format; a leading '-' would be parsed as a command-line option.
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
