"""An edge cluster whose brokers are replaced by others: a controller apart, which stays, and
brokers that come and go.

In the stack each broker is a controller too, so none of them could be taken away for good.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from tests.support.own_kafka import new_cluster_id, own_server, run_tool
from tests.support.waiting import wait_for

from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.health import check_broker
from hourmark_infra.stack.kafka import broker_properties
from hourmark_infra.stack.layout import free_ports

_CONTROLLER: Final = 100
_REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_CLUSTER: Final = "org.apache.kafka.tools.ClusterTool"


class MovingCluster:
    """Brokers by their ids; each has its own port and folder, for as long as the cluster is
    there.
    """

    def __init__(self, folder: Path, stack: LocalStack, nodes: Iterable[int]) -> None:
        self._folder = folder
        self._stack = stack
        self._id = new_cluster_id()
        self._ports = free_ports(tuple(map(str, (_CONTROLLER, *nodes))))
        self._ends: dict[int, contextlib.ExitStack] = {}

    def start(self, *nodes: int) -> None:
        """Start these brokers, and wait until each has joined."""
        for node in nodes:
            self._start(node, self._broker(node))
        for node in nodes:
            wait_for(
                lambda node=node: check_broker(self.address(node), node).ok,  # type: ignore[misc]
                f"broker {node} has joined",
                120,
            )

    def kill(self, *nodes: int) -> None:
        """End these; what they hold stays."""
        for node in nodes:
            self._ends.pop(node).close()

    def replace(self, old: int, new: int) -> None:
        """All that the one broker holds goes to the other, which is started; the old one is gone
        for good, with its folder.
        """
        self.start(new)
        self._move(old, new)
        self.kill(old)
        run_tool(
            self._stack.programs,
            _CLUSTER,
            "unregister",
            "--bootstrap-server",
            self.address(new),
            "--id",
            str(old),
        )
        shutil.rmtree(self._folder / str(old))

    def address(self, *nodes: int) -> str:
        """As a client's list of addresses."""
        return ",".join(f"127.0.0.1:{self._ports[str(node)]}" for node in nodes)

    def log_of(self, node: int) -> Path:
        """Where a broker's logs are."""
        return self._folder / str(node) / "log"

    def begin(self) -> None:
        """Start the controller."""
        quorum = {
            "process.roles": "controller",
            "node.id": str(_CONTROLLER),
            "log.dirs": str(self.log_of(_CONTROLLER)),
        }
        listening = {"listeners": f"CONTROLLER://{self.address(_CONTROLLER)}"}
        self._start(_CONTROLLER, {**quorum, **listening, **self._quorum()})

    def end(self) -> None:
        """End all that runs."""
        self.kill(*list(self._ends))

    def _start(self, node: int, properties: dict[str, str]) -> None:
        end = self._ends[node] = contextlib.ExitStack()
        end.enter_context(
            own_server(self._stack.programs, self._folder / str(node), properties, self._id)
        )

    def _broker(self, node: int) -> dict[str, str]:
        """As the stack's own, but for where it is and who leads."""
        listener = f"PLAINTEXT://{self.address(node)}"
        here = {
            "node.id": str(node),
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": str(self.log_of(node)),
        }
        return {
            **broker_properties(self._stack.layout, "edge", 1),
            **here,
            "process.roles": "broker",
            **self._quorum(),
        }

    def _quorum(self) -> dict[str, str]:
        return {
            "controller.quorum.voters": f"{_CONTROLLER}@{self.address(_CONTROLLER)}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def _move(self, old: int, new: int) -> None:
        topics = (
            AdminClient({"bootstrap.servers": self.address(new)}).list_topics(timeout=20).topics
        )
        plan = self._folder / f"{old}-to-{new}.json"
        moves = [
            {
                "topic": name,
                "partition": p.id,
                "replicas": [new if replica == old else replica for replica in p.replicas],
            }
            for name, topic in topics.items()
            for p in topic.partitions.values()
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        where = ("--bootstrap-server", self.address(new), "--reassignment-json-file", str(plan))
        run_tool(self._stack.programs, _REASSIGN, *where, "--execute")

        def moved() -> bool:
            said = run_tool(self._stack.programs, _REASSIGN, *where, "--verify")
            return "in progress" not in said and "There is no active reassignment" not in said

        wait_for(moved, f"all partitions of broker {old} are on broker {new}", 180)


@contextlib.contextmanager
def moving_cluster(
    folder: Path, stack: LocalStack, first: tuple[int, ...], later: tuple[int, ...]
) -> Iterator[MovingCluster]:
    """It runs with its first brokers, and is gone afterwards."""
    cluster = MovingCluster(folder, stack, (*first, *later))
    try:
        cluster.begin()
        cluster.start(*first)
        yield cluster
    finally:
        cluster.end()
