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
    """The persistent state of one local stack.

    Attributes:
        ports: TCP ports by port name; never changed except for ports taken by other programs.
        cluster_ids: Kafka cluster IDs by cluster, `edge` and `central`.
        processes: Known server processes by server name.
        clusters: Number of Kafka clusters: 2 for edge and central with a mirror, 1 for both roles.
        spread: Whether the central cluster and HDFS have three servers each, to survive the loss of
            one.
        workers: Number of workers that share the mirror.
        mirror: Whether the last `hourmark up` included the mirror.
        bucket_seconds: Length of a bucket in seconds.
        jmx: Whether brokers start with their JMX metrics enabled.
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
    version: Literal[1] = 1

    @property
    def shape(self) -> StackShape:
        """Return the number of servers of each kind."""
        return (SPREAD if self.spread else StackShape())._replace(mirrors=MIRRORS[: self.workers])

    def with_process(self, server: str, process: Process | None) -> StackState:
        """Return a copy with the process of `server` set, or removed if `process` is None."""
        others = {name: known for name, known in self.processes.items() if name != server}
        return replace(self, processes=others if process is None else {**others, server: process})


_JSON = TypeAdapter(StackState)


def new_state(
    preferred: Mapping[str, int] = ANY_PORTS,
    clusters: Clusters = 2,
    *,
    spread: bool = False,
    workers: Workers = 1,
) -> StackState:
    """Return the state of a new stack with new cluster IDs and free ports, without saving it.

    Args:
        preferred: Preferred ports by port name, used where they are free.
        clusters: Number of Kafka clusters.
        spread: Whether the central cluster and HDFS have three servers each.
        workers: Number of workers of the mirror.

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
    """Return new random Kafka cluster IDs for the clusters `edge` and `central`."""
    return {cluster: _kafka_uuid() for cluster in CLUSTERS}


def state_file(home: Path) -> Path:
    return stack_root(home) / "state.json"


def load_state(home: Path) -> StackState | None:
    """Return the saved state of the stack in the folder `home`, or None if there is none.

    Raises:
        HourmarkError: The state file cannot be read or parsed.
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
    """Replace the state file of the stack in the folder `home` atomically and durably."""
    write_durably(state_file(home), _JSON.dump_json(state, indent=1) + b"\n")


def _kafka_uuid() -> str:
    # Kafka's format; a leading '-' would be parsed as a command-line option.
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
