"""`state.json`: what must be remembered of a stack, replaced durably as a whole.

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
    Shape,
    free_ports,
    stack_root,
)
from hourmark_infra.stack.options import Clusters, Workers
from hourmark_infra.stack.process import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Ports, cluster ids, `clusters`, `spread`, `workers` never change once made; `mirror`,
    `bucket_seconds` and `jmx` say what the last `up` wanted.

    `clusters`: 2 are an edge and a central one, with a mirror between them; 1 is both, as a site
    has it that needs no other. `spread`: the central cluster and HDFS are three servers each, and
    outlive the loss of one. `workers`: how many share the mirror.
    """

    ports: dict[str, int]
    cluster_ids: dict[str, str]
    processes: dict[str, Process]
    clusters: Clusters = 2
    spread: bool = False
    workers: Workers = 1
    mirror: bool = True
    bucket_seconds: int = 3600
    jmx: bool = False  # brokers started from now on tell their metrics
    version: Literal[1] = 1

    @property
    def shape(self) -> Shape:
        """How many servers there are."""
        return (SPREAD if self.spread else Shape())._replace(mirrors=MIRRORS[: self.workers])

    def with_process(self, server: str, process: Process | None) -> State:
        """As this, with the server's process, or without where it is None."""
        others = {name: known for name, known in self.processes.items() if name != server}
        return replace(self, processes=others if process is None else {**others, server: process})


_JSON = TypeAdapter(State)


def new_state(
    preferred: Mapping[str, int] = ANY_PORTS,
    clusters: Clusters = 2,
    *,
    spread: bool = False,
    workers: Workers = 1,
) -> State:
    """A stack that never ran, with these ports where they are free."""
    ports = free_ports(preferred=preferred)
    ids = new_cluster_ids()
    return State(
        ports=ports,
        cluster_ids=ids,
        processes={},
        clusters=clusters,
        spread=spread,
        workers=workers,
    )


def new_cluster_ids() -> dict[str, str]:
    """Of two clusters that never were."""
    return {cluster: _kafka_uuid() for cluster in CLUSTERS}


def state_file(home: Path) -> Path:
    return stack_root(home) / "state.json"


def load_state(home: Path) -> State | None:
    """The stack's state; None where there was never one.

    Raises HourmarkError where it cannot be read.
    """
    path = state_file(home)
    try:
        return _JSON.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HourmarkError(
            f"{path} cannot be read ({error}); end the servers of this stack by hand, "
            f"remove {path.parent}, and run `hourmark up`"
        ) from error


def save_state(home: Path, state: State) -> None:
    """Replace the state durably."""
    write_durably(state_file(home), _JSON.dump_json(state, indent=1) + b"\n")


def _kafka_uuid() -> str:
    # Kafka's own form; a leading '-' would read as an option.
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
