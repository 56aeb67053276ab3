"""How the mirror stands: who runs it, and how much of the edge it has not copied yet."""

from __future__ import annotations

from collections.abc import Sequence

from hourmark.commands.component_status import ComponentStatus, State, must_listen
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.state_folder import StateFolder
from hourmark_mirror.lag import Lag, measure_lag


def mirror_status(config: Config, now_ms: int) -> ComponentStatus:
    """By the lock of its work folder, and by its positions on the central cluster."""
    if not config.kafka.mirrored:
        return ComponentStatus(
            State.NOT_RUNNING, "one cluster is both edge and central: there is none"
        )
    pid = StateFolder(config.mirror.work_dir, "mirror").holder()
    try:
        must_listen(config.kafka.edge, "edge")
        must_listen(config.kafka.central_cluster, "central")
        said = describe_lag(measure_lag(config))
    except Unavailable as error:
        said = str(error)
    return (
        ComponentStatus(State.NOT_RUNNING, said)
        if pid is None
        else ComponentStatus(State.RUNNING, said, pid, now_ms)
    )


def describe_lag(lags: Sequence[Lag]) -> str:
    """How much is copied, in words."""
    behind = [lag.records for lag in lags if lag.records > 0]
    stale = sum(lag.records < 0 for lag in lags)
    said = (
        [f"{sum(behind):,} records of {len(behind)} topic-partitions not copied yet"]
        if behind
        else []
    )
    if stale:
        said.append(
            f"{stale} positions are past the edge's end: stale, so nothing is copied "
            "there (`hourmark mirror lag`)"
        )
    return "; ".join(said) or "has copied all that is at the edge"
