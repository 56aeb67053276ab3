"""A broker whose disk is replaced: it comes back with nothing of its topics, and copies them from
its neighbours.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.faults.chaos.eyes import SILENT
from tests.faults.chaos.faults.fault import Fault, Heal, index_of
from tests.faults.chaos.faults.processes import CLIENTS
from tests.faults.chaos.flows import ALL, Flow

if TYPE_CHECKING:
    from tests.faults.chaos.world import World

_AWAY_S: Final = (15.0, 30.0)  # its cluster knows that it is away before it is back
_COPIED_S: Final = 300.0
_ANSWER_S: Final = 5.0
_VOTES: Final = "__cluster_metadata-0"  # of a controller, which would have a disk of its own


def _disk_replaced(cluster: str, world: World, pick: float) -> Heal:
    """SIGKILL for one of three; all its partitions go. It is back once they are whole again."""
    nodes = world.stack.layout.nodes(cluster)
    name = f"{cluster}-{nodes[index_of(pick, len(nodes))]}"
    world.hit.add(name)
    world.victims[name].kill()
    _clear(world.stack.layout.data / name / "log")

    def heal() -> None:
        world.victims[name].come_back()
        world.wait(
            lambda: _is_whole(world.stack.layout.bootstrap(cluster)),
            f"{name} to have copied its partitions",
            _COPIED_S,
        )
        world.hit.discard(name)

    return heal


def _clear(log: Path) -> None:
    """But for the votes, and for whose folder it is."""
    for entry in log.iterdir():
        if entry.is_dir() and entry.name != _VOTES:
            shutil.rmtree(entry)
        elif entry.name.endswith("-checkpoint") or entry.name == ".kafka_cleanshutdown":
            entry.unlink()


def _is_whole(bootstrap: str) -> bool:
    """Whether each copy of each partition is in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}, logger=SILENT)
    try:
        topics = admin.list_topics(timeout=_ANSWER_S).topics.values()
    except KafkaException:
        return False
    return all(
        len(of.isrs) == len(of.replicas) for topic in topics for of in topic.partitions.values()
    )


FAULTS: Final[Sequence[Fault]] = (
    Fault(
        "edge-broker-disk-replaced",
        frozenset(("edge",)),
        ALL - {Flow.CLOSING},
        _AWAY_S,
        partial(_disk_replaced, "edge"),
    ),
    Fault(
        "central-broker-disk-replaced",
        frozenset(("central",)),
        CLIENTS,
        _AWAY_S,
        partial(_disk_replaced, "central"),
        needs_spread=True,
    ),
)
