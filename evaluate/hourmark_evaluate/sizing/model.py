"""The resources that a load needs, per component. All functions are pure.

The CPU cost is linear. It is the sum of a constant part and parts per event, per KB of log lines,
and per event type or closed bucket. Only components that handle topics and requests per type have a
part per type. Network and disk are computed from the bytes of the log lines, multiplied by ratios
measured at each stage. The number of machines of a component is determined by the scarcest of CPU,
network and disk at the allowed utilisation, rounded up. It is at least the number needed to
tolerate the loss of one machine.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

# Components whose cost per type arises with each bucket of the type.
BY_BUCKET: Final = frozenset(("etl", "hdfs"))
COMPONENTS: Final = ("tailer", "service", "edge", "mirror", "central", "etl", "hdfs")
_DAY_S: Final = 86_400
_HOUR_S: Final = 3600
_KB: Final = 1000.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load of events for which an installation is sized.

    Attributes:
        events_per_second: Peak rate, in events per second.
        event_bytes: Mean size of a log line in bytes, including its line end.
        types: Number of event types.
        hosts: Number of log hosts.
        bucket_seconds: Time span of a bucket, the unit in which events are stored, in seconds.
        retention_hours: Retention of the Kafka topics, edge and central, in hours.
        kept_days: Retention of closed buckets, in days.
        replication: Replication factor of Kafka topics and of HDFS.
        mean_to_peak: Mean daily rate divided by the peak rate, used to compute disk space.
    """

    events_per_second: float
    event_bytes: float
    types: int = 10
    hosts: int = 100
    bucket_seconds: int = _HOUR_S
    retention_hours: float = 72.0
    kept_days: float = 365.0
    replication: int = 3
    mean_to_peak: float = 1.0

    @property
    def buckets_per_second(self) -> float:
        """Number of buckets that are closed per second, over all event types."""
        return self.types / self.bucket_seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The capacity of one machine, and the allowed utilisation at the peak.

    Attributes:
        cores: Number of CPU cores.
        network_gbit: Network bandwidth in Gbit/s.
        disk_tb: Disk space in TB.
        utilisation: Allowed utilisation of CPU, network and disk, above 0 and at most 1.
    """

    cores: int = 16
    network_gbit: float = 10.0
    disk_tb: float = 20.0
    utilisation: float = 0.6


class CpuCost(NamedTuple):
    """The CPU cost of one component, as coefficients of a linear model.

    `predict_cores` multiplies each coefficient by the corresponding quantity of a load and returns
    the sum.

    Attributes:
        constant: CPU seconds per second that one instance uses without load.
        event: CPU seconds per event.
        kb: CPU seconds per 1,000 bytes of log lines.
        type: CPU seconds per second for each event type.
        bucket: CPU seconds per closed bucket.
    """

    constant: float
    event: float
    kb: float
    type: float = 0.0
    bucket: float = 0.0

    def predict_cores(self, load: Load, instances: int = 1) -> float:
        """Return the number of CPU cores that a component uses under a load.

        Args:
            load: The load, at its peak rate.
            instances: Number of instances of the component. Each of them has the constant cost.
        """
        rate = load.events_per_second
        work = rate * self.event + rate * load.event_bytes / _KB * self.kb
        return (
            instances * self.constant
            + work
            + load.types * self.type
            + load.buckets_per_second * self.bucket
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The coefficients of the model that estimates CPU, network and disk for a load.

    They are fitted to measurements by `fit_coefficients`.

    Attributes:
        costs: CPU cost by component.
        sent: Bytes sent to the delivery service per byte of log line.
        topic: Bytes in one replica of a Kafka topic per byte of log line.
        bucket: Bytes in a closed bucket per byte of log line.
    """

    costs: Mapping[str, CpuCost]
    sent: float
    topic: float
    bucket: float


class ComponentRequirement(NamedTuple):
    """The resources that one component needs at the peak.

    Attributes:
        component: Name of the component.
        cores: CPU cores in use, all machines together.
        network_mbit: Traffic in the busier direction in Mbit/s, all machines together.
        disk_tb: Disk space in TB, all machines together.
        machines: Number of machines; 0 for the tailer, which runs on the log hosts.
        bound_by: What determines the number of machines: "cpu", "network", "disk" or "one may be
            away" (the component must tolerate the loss of one); "on each host" for the tailer.
    """

    component: str
    cores: float
    network_mbit: float
    disk_tb: float
    machines: int
    bound_by: str


def estimate_requirements(
    load: Load, machine: Machine, measured: Coefficients
) -> list[ComponentRequirement]:
    """Estimate the resources that each component needs for a load.

    The components are returned in the order in which events pass through them. Tailers run on the
    log hosts, so they need no machines of their own.

    Args:
        load: The load.
        machine: Capacity of one machine.
        measured: Coefficients of the model, with a cost for every component.

    Raises:
        KeyError: The coefficients have no cost for a component.
    """
    return [_need(component, load, machine, measured) for component in COMPONENTS]


def _need(
    component: str, load: Load, machine: Machine, measured: Coefficients
) -> ComponentRequirement:
    cores = measured.costs[component].predict_cores(
        load, load.hosts if component == "tailer" else 1
    )
    mbit = _network_mbit(component, load, measured)
    disk_tb = _disk_tb(component, load, measured)
    if component == "tailer":
        return ComponentRequirement(component, cores, mbit, disk_tb, 0, "on each host")
    demands = {
        "cpu": cores / (machine.cores * machine.utilisation),
        "network": mbit / (machine.network_gbit * 1000 * machine.utilisation),
        "disk": disk_tb / (machine.disk_tb * machine.utilisation),
        "one may be away": float(_machines_min(component, load)),
    }
    bound_by = max(demands, key=lambda name: math.ceil(demands[name]))
    return ComponentRequirement(
        component, cores, mbit, disk_tb, math.ceil(demands[bound_by]), bound_by
    )


def _machines_min(component: str, load: Load) -> int:
    if component in ("edge", "central", "hdfs"):
        return load.replication
    return 1 if component == "etl" else 2


def _network_mbit(component: str, load: Load, measured: Coefficients) -> float:
    mbit = load.events_per_second * load.event_bytes * 8 / 1e6
    ways = {
        "tailer": measured.sent,
        "service": max(measured.sent, measured.topic),
        "edge": load.replication * measured.topic,  # inbound: each replica once
        "mirror": measured.topic,
        "central": load.replication * measured.topic,
        "etl": measured.topic
        + measured.bucket,  # inbound: topics; outbound: staged files and buckets
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


def total_cores(needs: Sequence[ComponentRequirement]) -> float:
    """Return the total number of CPU cores that all components use, including tailers.

    Args:
        needs: Result of `estimate_requirements`.
    """
    return sum(need.cores for need in needs)
