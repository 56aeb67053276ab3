"""Status of the tailer of this host for `hourmark status` and `hourmark doctor`.

Only this host knows the file and the reason of a range that a service refuses. About tailers on
other hosts, only their reports are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

from hourmark.commands.component_status import ComponentState, ComponentStatus
from hourmark.commands.problems import CauseClass, Problem
from hourmark.config.loading import Config
from hourmark_producer.checkpoint.installation import CHECKPOINT
from hourmark_producer.report.status import TailerStatus, read_status

_STATUS: str = "`hourmark tail status`"


def local_tailer(config: Config, now_ms: int) -> ComponentStatus:  # noqa: ARG001  # a status function
    """Return the status of the tailer (log shipper) on this host, from its state folder.

    Args:
        config: Configuration with the group `tailer`.
        now_ms: Not used. All status functions have this argument.

    Returns:
        The status `RUNNING` or `NOT_RUNNING`, with its problems. They include the ongoing problems
        that a running tailer reports, such as a range that no service accepts. If no tailer is
        running, undelivered data is a problem. There are no problems if a tailer has never run on
        this host.

    Raises:
        HourmarkError: The state folder cannot be read.
    """
    folder: Path = config.tailer.state_dir
    if not (folder / CHECKPOINT).is_file():
        return ComponentStatus(
            ComponentState.NOT_RUNNING, f"no tailer has run with state folder {folder}"
        )
    status = read_status(folder, [source.name for source in config.tailer.sources])
    pending = sum(source.pending_bytes + source.in_flight_bytes for source in status.sources)
    return ComponentStatus(
        ComponentState.RUNNING if status.pid else ComponentState.NOT_RUNNING,
        f"tailer {'is running' if status.pid else 'is not running'} with state folder {folder}; "
        f"{len(status.files)} files, {pending} bytes not acknowledged",
        status.pid,
        status.standing.written_at_ms if status.standing else None,
        tuple(_problems(status)),
    )


def _problems(status: TailerStatus) -> Iterator[Problem]:
    standing = status.standing
    conditions = standing.troubles if standing and status.pid == standing.pid else []
    # The first problem also explains why reports of this tailer do not arrive, if they do not.
    keys = chain([f"host:{status.host_id}"], (f"tailer-problem:{n}" for n in count()))
    for condition in conditions:
        yield Problem(
            cause=CauseClass.HOST,
            key=next(keys),
            subject="tailer of this host",
            what=condition.message,
            do=f"follow the message; {_STATUS} shows files and services",
            since_ms=condition.since_ms,
            group="conditions of this host's tailer",
        )
    messages = {condition.message for condition in conditions}
    for message in (m for m in status.attention if m not in messages):
        yield Problem(
            cause=CauseClass.HOST,
            key=next(keys),
            subject="tailer of this host",
            what=message,
            do=f"{_STATUS} shows files and services; the tailer's log states the reason",
            since_ms=standing.written_at_ms if standing else None,
        )
