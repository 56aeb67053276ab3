"""How the mirror stands: who runs it, and how much of the edge it has not copied yet."""

from __future__ import annotations

from collections.abc import Sequence

from hourmark.commands.component_status import ComponentState, ComponentStatus, check_listening
from hourmark.config.loading import Config
from hourmark.errors import Unavailable
from hourmark.state_folder import StateFolder
from hourmark_mirror.lag import Lag, measure


def mirror(config: Config, now_ms: int) -> ComponentStatus:
    """By the lock of its work folder, and by its positions on the central cluster."""
    if not config.kafka.mirrored:
        return ComponentStatus(
            ComponentState.NOT_RUNNING, "one cluster is both edge and central: there is none"
        )
    pid = StateFolder(config.mirror.work_dir, "mirror").holder()
    try:
        check_listening(config.kafka.edge, "edge")
        check_listening(config.kafka.central_cluster, "central")
        said = copied(measure(config))
    except Unavailable as error:
        said = str(error)
    return (
        ComponentStatus(ComponentState.NOT_RUNNING, said)
        if pid is None
        else ComponentStatus(ComponentState.RUNNING, said, pid, now_ms)
    )


def copied(lags: Sequence[Lag]) -> str:
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
