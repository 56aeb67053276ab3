"""How the mirror stands: who runs it, and how much of the edge it has not copied yet."""

from __future__ import annotations

from hourmark.component_status import ComponentStatus, State, must_listen
from hourmark.config import Config
from hourmark.errors import Unavailable
from hourmark.state_folder import StateFolder
from hourmark_mirror.lag import measure


def mirror(config: Config, now_ms: int) -> ComponentStatus:
    """By the lock of its work folder, and by its positions on the central cluster."""
    if not config.kafka.mirrored:
        return ComponentStatus(State.NOT_RUNNING, "one cluster is both edge and central: there is none")
    pid = StateFolder(config.mirror.work_dir, "mirror").holder()
    state = State.NOT_RUNNING if pid is None else State.RUNNING
    heard_at_ms = None if pid is None else now_ms
    try:
        must_listen(config.kafka.edge, "edge")
        must_listen(config.kafka.central_cluster, "central")
        lags = measure(config)
    except Unavailable as error:
        return ComponentStatus(state, str(error), pid, heard_at_ms)
    behind = [lag for lag in lags if lag.records > 0]
    records = sum(lag.records for lag in behind)
    said = (
        f"{records:,} records of {len(behind)} topic-partitions not copied yet"
        if behind
        else "has copied all that is at the edge"
    )
    return ComponentStatus(state, said, pid, heard_at_ms)
