"""Status of the mirror for `hourmark status`: whether it copies records, and how far it is behind.

Delivery services write a host report to the edge every two seconds. If a report is not copied
within `STALLED_MS`, the mirror is dead or hangs. The timestamp of the report shows since when. This
works on any machine, without access to the process of the mirror.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from hourmark.commands.component_status import (
    ComponentState,
    ComponentStatus,
    check_listening,
    format_age,
)
from hourmark.commands.problems import CauseClass, Problem
from hourmark.config.groups import KafkaCluster
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.topic_names import HOSTS
from hourmark.state_folder import StateFolder
from hourmark_mirror.lag import Lag, measure_lag

STALLED_MS: Final = 15_000
_NEWEST: Final = 3  # offsets read to find the newest record; some may be transaction markers
_READ_S: Final = 3.0


def mirror_status(config: Config, now_ms: int) -> ComponentStatus:
    """Return the status of the mirror, with the number of records that it has not copied yet.

    Args:
        config: Configuration with both clusters and `mirror.work_dir`.
        now_ms: Current Unix time in milliseconds.

    Returns:
        A status with one of these states:

        - `SILENT` if a process holds the lock on the work folder, but records are no longer copied
        - `RUNNING` if such a process exists, or if a mirror on another machine has copied records
          recently
        - `NOT_RUNNING` otherwise

        The detail is the text from `describe_lag`, or the reason why the clusters could not be
        read. The status contains a problem only if a mirror that copied records before has stopped
        copying.
    """
    if not config.kafka.mirrored:
        return ComponentStatus(
            ComponentState.NOT_RUNNING, "not needed, because one cluster is both edge and central"
        )
    pid = StateFolder(config.mirror.work_dir, "mirror").holder()
    waiting_ms, copied_ms, has_copied = None, None, False
    try:
        check_listening(config.kafka.edge, "edge")
        check_listening(config.kafka.central_cluster, "central")
        lags = measure_lag(config)
        detail = describe_lag(lags)
        has_copied = any(lag.position is not None for lag in lags)
        waiting_ms, copied_ms = _reports_copied(config.kafka.edge, lags)
    except Unavailable as error:
        detail = str(error)
    if has_copied and waiting_ms is not None and now_ms - waiting_ms > STALLED_MS:
        return _stalled(pid, waiting_ms, now_ms, detail)
    if pid is not None:
        return ComponentStatus(ComponentState.RUNNING, detail, pid, now_ms)
    # A report that waits since a moment ago shows that the one before it was copied.
    heard_ms = waiting_ms if copied_ms is None else copied_ms
    if has_copied and heard_ms is not None and now_ms - heard_ms <= STALLED_MS:
        return ComponentStatus(
            ComponentState.RUNNING, f"on another machine; {detail}", heard_at_ms=heard_ms
        )
    return ComponentStatus(ComponentState.NOT_RUNNING, detail)


def _reports_copied(edge: KafkaCluster, lags: Sequence[Lag]) -> tuple[int | None, int | None]:
    # The times of the oldest host report that is not copied, and of the newest one that is.
    waiting, copied = [], []
    for lag in (lag for lag in lags if lag.topic == HOSTS):
        partition = Partition(lag.topic, lag.partition)
        position = max(lag.position or 0, lag.edge_start)
        if 0 <= position < lag.edge_end:
            waiting += _times_ms(edge, partition, position, lag.edge_end)[:1]
        else:
            start = max(lag.edge_start, lag.edge_end - _NEWEST)
            copied += _times_ms(edge, partition, start, lag.edge_end)[-1:]
    return min(waiting, default=None), max(copied, default=None)


def _times_ms(edge: KafkaCluster, partition: Partition, start: int, end: int) -> list[int]:
    # The times of the first records from `start` on; empty if there is none.
    if start >= end:
        return []
    with contextlib.closing(CommittedReader(edge, "edge", stall_s=_READ_S, batch=10)) as reader:
        for runs in reader.read({partition: (start, end)}):
            for run in runs:
                if run.records:
                    return [int(record.timestamp()[1]) for record in run.records]
    return []


def _stalled(pid: int | None, since_ms: int, now_ms: int, detail: str) -> ComponentStatus:
    age = format_age(since_ms, now_ms)
    if pid is None:
        state, what = ComponentState.NOT_RUNNING, f"it has copied nothing for {age}: {detail}"
        do = "start it on its machine: `hourmark mirror run` (`hourmark up`, for the local stack)"
    else:
        state = ComponentState.SILENT
        what = f"process {pid} exists, and has copied nothing for {age}: {detail}"
        do = (
            "check its log and the alarms of `hourmark mirror watch` (docs/operate/runbooks); if the "
            "process was suspended, continue it (SIGCONT); otherwise end it and start it again: "
            "`hourmark mirror run` (`hourmark up`, for the local stack)"
        )
    problem = Problem(
        cause=CauseClass.COMPONENT,
        key="mirror",
        subject="mirror",
        what=what,
        do=do,
        since_ms=since_ms,
    )
    return ComponentStatus(state, f"nothing copied for {age}; {detail}", pid, None, (problem,))


def describe_lag(lags: Sequence[Lag]) -> str:
    """Describe the replication lag of all topic-partitions in one line of text.

    Args:
        lags: Lag of each topic-partition, from `measure_lag`.

    Returns:
        A text such as `1,200 records of 3 topic-partitions not copied yet`, followed by the number
        of positions past the edge's log end, if any. If nothing is left to copy, the text states
        that all records are copied.
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
