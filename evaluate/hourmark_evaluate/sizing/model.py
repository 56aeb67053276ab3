"""What a load takes, component by component. Pure.

CPU is linear: so much for being there, for each event, each KB of its line, and for each type
(where it has topics and requests of its own) or closed bucket. Bytes are the line's, times what was
measured of them on each way. A component needs as many machines as the scarcest of CPU, network and
disk demands at the utilisation that is allowed, rounded up, and as many as it must have so that one
may be away.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

BY_BUCKET: Final = frozenset(
    ("etl", "hdfs")
)  # what a type takes there, it takes with each of its buckets
COMPONENTS: Final = ("tailer", "service", "edge", "mirror", "central", "etl", "hdfs")
_DAY_S: Final = 86_400
_HOUR_S: Final = 3600
_KB: Final = 1000.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is to be carried. Rates are those of the peak hour."""

    events_per_second: float
    event_bytes: float  # of a line, with its end
    types: int = 10
    hosts: int = 100
    bucket_seconds: int = _HOUR_S
    retention_hours: float = 72.0  # of Kafka's topics, edge and central
    kept_days: float = 365.0  # of buckets
    replication: int = 3  # of Kafka, and of HDFS
    mean_to_peak: float = 1.0  # for what is stored: the day's mean rate, as a part of the peak's

    @property
    def buckets_per_second(self) -> float:
        """That are closed."""
        return self.types / self.bucket_seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One, and how much of it may be in use at the peak."""

    cores: int = 16
    network_gbit: float = 10.0
    disk_tb: float = 20.0
    utilisation: float = 0.6


class Cost(NamedTuple):
    """Of a component, in seconds of CPU: `there`, and `type` of each type, for each second; else
    for each event, KB, bucket.
    """

    there: float
    event: float
    kb: float
    type: float = 0.0
    bucket: float = 0.0

    def cores(self, load: Load, times: int = 1) -> float:
        """Of CPU, while it lasts.

        `times`: so often it is there for itself; however many share one's work, that counts once.
        """
        rate = load.events_per_second
        work = rate * self.event + rate * load.event_bytes / _KB * self.kb
        return (
            times * self.there
            + work
            + load.types * self.type
            + load.buckets_per_second * self.bucket
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Measured. What a byte of line comes to, packed: `sent` to a service, in one replica of a
    `topic`, in a `bucket`.
    """

    costs: Mapping[str, Cost]
    sent: float
    topic: float
    bucket: float


class Need(NamedTuple):
    """Of one component.

    `bound_by`: what demands the machines: cpu, network, disk, or that one may be away.
    """

    component: str
    cores: float
    network_mbit: float
    disk_tb: float
    machines: int
    bound_by: str


def needs(load: Load, machine: Machine, measured: Coefficients) -> list[Need]:
    """By component, in the order of an event's way.

    A tailer needs no machine of its own: its is the share of each host.
    """
    return [_need(component, load, machine, measured) for component in COMPONENTS]


def _need(component: str, load: Load, machine: Machine, measured: Coefficients) -> Need:
    cores = measured.costs[component].cores(load, load.hosts if component == "tailer" else 1)
    mbit = _network_mbit(component, load, measured)
    disk_tb = _disk_tb(component, load, measured)
    if component == "tailer":
        return Need(component, cores, mbit, disk_tb, 0, "on each host")
    demands = {
        "cpu": cores / (machine.cores * machine.utilisation),
        "network": mbit / (machine.network_gbit * 1000 * machine.utilisation),
        "disk": disk_tb / (machine.disk_tb * machine.utilisation),
        "one may be away": float(_least(component, load)),
    }
    bound_by = max(demands, key=lambda name: math.ceil(demands[name]))
    return Need(component, cores, mbit, disk_tb, math.ceil(demands[bound_by]), bound_by)


def _least(component: str, load: Load) -> int:
    if component in ("edge", "central", "hdfs"):
        return load.replication
    return 1 if component == "etl" else 2


def _network_mbit(component: str, load: Load, measured: Coefficients) -> float:
    """What the busier direction of its network carries, of all of its machines together."""
    mbit = load.events_per_second * load.event_bytes * 8 / 1e6
    ways = {
        "tailer": measured.sent,
        "service": max(measured.sent, measured.topic),
        "edge": load.replication * measured.topic,  # in: each replica once
        "mirror": measured.topic,
        "central": load.replication * measured.topic,
        "etl": measured.topic + measured.bucket,  # topics in; staged, and buckets, out
        "hdfs": load.replication * (measured.topic + measured.bucket),
    }
    return mbit * ways[component]


def _disk_tb(component: str, load: Load, measured: Coefficients) -> float:
    tb_a_second = (
        load.events_per_second * load.mean_to_peak * load.event_bytes * load.replication / 1e12
    )
    if component in ("edge", "central"):
        return tb_a_second * measured.topic * load.retention_hours * _HOUR_S
    return tb_a_second * measured.bucket * load.kept_days * _DAY_S if component == "hdfs" else 0.0


def cores_in_all(found: Sequence[Need]) -> float:
    """Tailers' included."""
    return sum(need.cores for need in found)
