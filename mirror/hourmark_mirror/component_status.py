"""Status of the mirror for `hourmark status`: its process, and how much is not copied yet."""

from __future__ import annotations

from collections.abc import Sequence

from hourmark.commands.component_status import ComponentState, ComponentStatus, check_listening
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.state_folder import StateFolder
from hourmark_mirror.lag import Lag, measure_lag


def mirror_status(config: Config, now_ms: int) -> ComponentStatus:
    """Return whether a mirror runs on this host and how many records it has not copied yet.

    Args:
        config: Configuration with both clusters and `mirror.work_dir`.
        now_ms: Current Unix time in milliseconds.

    Returns:
        Status of the component. Its state is `RUNNING` if a process holds the lock of the work
        folder, otherwise `NOT_RUNNING`. Its detail is the lag from `describe_lag`, or the reason
        why the clusters could not be read.
    """
    if not config.kafka.mirrored:
        return ComponentStatus(
            ComponentState.NOT_RUNNING, "not needed: one cluster is both edge and central"
        )
    pid = StateFolder(config.mirror.work_dir, "mirror").holder()
    try:
        check_listening(config.kafka.edge, "edge")
        check_listening(config.kafka.central_cluster, "central")
        detail = describe_lag(measure_lag(config))
    except Unavailable as error:
        detail = str(error)
    return (
        ComponentStatus(ComponentState.NOT_RUNNING, detail)
        if pid is None
        else ComponentStatus(ComponentState.RUNNING, detail, pid, now_ms)
    )


def describe_lag(lags: Sequence[Lag]) -> str:
    """Describe the replication lag of all topic-partitions in one line of text.

    Args:
        lags: Lag of each topic-partition, from `measure_lag`.

    Returns:
        Text such as `1,200 records of 3 topic-partitions not copied yet`, plus the number of
        positions that are past the edge's log end. If nothing is left to copy, the text says that
        all records are copied.
    """
    behind = [lag.records for lag in lags if lag.records > 0]
    stale = sum(lag.records < 0 for lag in lags)
    parts = (
        [f"{sum(behind):,} records of {len(behind)} topic-partitions not copied yet"]
        if behind
        else []
    )
    if stale:
        parts.append(
            f"{stale} positions are past the edge's log end, so nothing is copied "
            "there (`hourmark mirror lag`)"
        )
    return "; ".join(parts) or "all records of the edge are copied"
