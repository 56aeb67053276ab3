"""Prometheus metrics of the watch, with names, types and meanings. See docs/reference/metrics.md."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from hourmark.process.alarms import Alarm, AlarmName
from hourmark_mirror.watch.alarms import UnverifiedReason, WatchResult, retention_left_s
from hourmark_mirror.watch.observation import MirrorObservation

WATCHED: Final = tuple(name for name in AlarmName if name != AlarmName.CANARY_LATE)


class MirrorMetrics:
    """The Prometheus metrics of `hourmark mirror watch`, in a separate registry.

    Metrics have no topic label, because every topic would add a time series.

    Attributes:
        registry: Registry to expose on the metrics endpoint.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._alarms = Gauge(
            "hourmark_mirror_alarms",
            "Active alarms by name.",
            ["name"],
            registry=self.registry,
        )
        self._observed = Gauge(
            "hourmark_mirror_last_look_timestamp_seconds",
            "Unix time of the last successful observation of the mirror.",
            registry=self.registry,
        )
        self._lag = Gauge(
            "hourmark_mirror_lag_records",
            "Number of edge records that are not copied yet.",
            registry=self.registry,
        )
        self._left = Gauge(
            "hourmark_mirror_retention_left_seconds",
            "Seconds until the edge's retention may delete the first uncopied record, "
            "minimum over all topic-partitions.",
            registry=self.registry,
        )
        self._verified = Gauge(
            "hourmark_mirror_verified_lag_seconds",
            "Seconds by which verification by samples is behind, maximum over all topics.",
            registry=self.registry,
        )
        self._compared = Gauge(
            "hourmark_mirror_sampled_records",
            "Records compared by samples since the first observation.",
            registry=self.registry,
        )
        self._verified.set(math.nan)  # also before the first observation
        self.record_alarms([])

    def record_observation(self, observation: MirrorObservation, result: WatchResult) -> None:
        """Update the metrics for lag, retention and sampling after one observation.

        Args:
            observation: State of both clusters.
            result: Alarms and verified topics derived from the observation.
        """
        behind_s = [(observation.now_ms - v.through_ms) / 1000 for v in result.verified.values()]
        endless = [math.inf] if UnverifiedReason.NOT_COMPARED in result.unverified.values() else []
        self._verified.set(max([*behind_s, *endless], default=math.nan))
        self._compared.set(sum(v.compared for v in result.verified.values()))
        self._observed.set(observation.now_ms / 1000)
        offsets = (
            (end, max(observation.positions.get(p, 0), observation.starts[p]))
            for p, end in observation.ends.items()
        )
        self._lag.set(sum(max(0, end - at) for end, at in offsets))
        # Where nothing waits to be copied, the whole retention is left.
        retentions = (ms / 1000 for ms in observation.retention_ms.values() if ms >= 0)
        self._left.set(
            min([*retention_left_s(observation).values(), *retentions], default=math.inf)
        )

    def record_alarms(self, alarms: Sequence[Alarm]) -> None:
        """Update the number of active alarms for each alarm name.

        Args:
            alarms: All active alarms. Names that do not occur are set to 0.
        """
        counts = collections.Counter(alarm.name for alarm in alarms)
        for name in WATCHED:
            self._alarms.labels(name=name).set(counts[name])
