"""States that MirrorMaker 2 reports for its connectors and tasks.

In dedicated mode its REST server answers only other workers (`InternalMirrorResource`). The states
are in the compacted topic `mm2-status.<source>.internal` on the target (`KafkaStatusBackingStore`):
the key is `status-task-MirrorSourceConnector-0`, the value JSON with `state`, `trace` and
`worker_id`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from hourmark.kafka.compacted_topic import KeyValue

_LOG = logging.getLogger(__name__)

_KEY: Final = re.compile(r"status-(connector|task)-(?P<name>.+)")
CAUSE_LENGTH_MAX: Final = 500


class ConnectorTaskFailure(NamedTuple):
    """Failure of a connector or task of MirrorMaker 2.

    Attributes:
        name: Connector or task name, such as `MirrorSourceConnector-0`.
        cause: Innermost cause in the stack trace, or another description of the failure.
    """

    name: str
    cause: str


def status_topic(edge_alias: str) -> str:
    """Return the name of the Kafka Connect status topic of one mirror.

    MirrorMaker 2 creates this topic on the target cluster and writes the states of its connectors
    and tasks to it.

    Args:
        edge_alias: Alias of the edge (source) cluster.

    Returns:
        Topic name, such as `mm2-status.edge.internal`.
    """
    return f"mm2-status.{edge_alias}.internal"


class TaskState(NamedTuple):
    """Last state that a MirrorMaker 2 worker reported for a connector or task.

    Attributes:
        state: Kafka Connect state, such as `RUNNING` or `FAILED`.
        worker: Address of the reporting worker, `host:port`.
        generation: Generation of the worker group when the state was reported.
        version: Version of MirrorMaker 2; empty if not reported.
        cause: Innermost cause of a failure; only meaningful in the state `FAILED`.
    """

    state: str
    worker: str
    generation: int
    version: str
    cause: str


class TaskStates:
    """Last known states of all connectors and tasks of one mirror.

    A worker that was paused or disconnected may report the failure of a task that another worker
    has already taken over. Such a report has an older group generation than the running task, and
    is ignored.

    Args:
        worker: Address of this worker, `host:port`; empty if this process is not a worker.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._last: dict[str, TaskState] = {}
        self._outdated: set[str] = set()  # reported by an earlier run

    def update(self, records: Iterable[KeyValue]) -> None:
        """Update the states from records of the Kafka Connect status topic.

        Records that do not describe a connector or task are ignored. Records that cannot be parsed
        are also ignored, and a warning with their number is logged.

        Args:
            records: Key and value of each record, in offset order. A record without a value
                (tombstone) removes the state of its key.
        """
        unreadable: list[str] = []
        for key, value in records:
            match = _KEY.fullmatch((key or b"").decode("utf-8", "replace"))
            if match is None:
                continue
            name = match["name"]
            if not value:  # tombstone
                self._last.pop(name, None)
                continue
            try:
                reported = _state(json.loads(value))
            except (AttributeError, TypeError, ValueError, RecursionError):
                unreadable.append(name)
                continue
            if reported.state == "RUNNING" or not _is_stale(reported, self._last.get(name)):
                self._last[name] = reported
                self._outdated.discard(name)
        if unreadable:
            _LOG.warning(
                "%d records of the status topic were not written by MirrorMaker 2 and are ignored, the "
                "first one of %s; check which other client writes to the topic",
                len(unreadable),
                unreadable[0],
            )

    def mark_outdated(self) -> None:
        """Mark states as outdated before MirrorMaker 2 is started again on this worker.

        An outdated state is considered neither running nor failed until it is reported again.
        States of tasks that are running on another worker are not marked.
        """
        self._outdated |= {
            name
            for name, last in self._last.items()
            if last.state != "RUNNING" or last.worker == self._worker
        }

    def is_running(self, name: str) -> bool:
        """Return whether a connector or task last reported the state `RUNNING`.

        Args:
            name: Name of the connector or task, such as `MirrorSourceConnector-0`.

        Returns:
            True if the last reported state is `RUNNING` and not outdated (see `mark_outdated`).
            False if the name is unknown.
        """
        return (
            name in self._last
            and name not in self._outdated
            and self._last[name].state == "RUNNING"
        )

    def to_dict(self) -> dict[str, TaskState]:
        """Return the last reported state of each connector and task, including outdated states.

        Returns:
            A new dict of states by connector or task name, sorted by name; empty before the first
            report.
        """
        return dict(sorted(self._last.items()))

    @property
    def failures(self) -> list[ConnectorTaskFailure]:
        """Return all connectors and tasks of the mirror whose last state is `FAILED`.

        Returns:
            Failures reported by any worker; empty if there are none. Outdated states are omitted.
        """
        return [ConnectorTaskFailure(name, last.cause) for name, last in self._failed()]

    @property
    def local_failures(self) -> list[ConnectorTaskFailure]:
        """Return the connectors and tasks that this worker last reported as `FAILED`.

        Returns:
            Failures reported by this worker; empty if there are none. Outdated states are omitted.
        """
        return [
            ConnectorTaskFailure(name, last.cause)
            for name, last in self._failed()
            if last.worker == self._worker
        ]

    def _failed(self) -> list[tuple[str, TaskState]]:
        return [
            (name, last)
            for name, last in self.to_dict().items()
            if last.state == "FAILED" and name not in self._outdated
        ]


def _state(value: Mapping[str, Any]) -> TaskState:
    worker = str(value.get("worker_id")).partition("/")[0]
    return TaskState(
        state=str(value.get("state")),
        worker=worker,
        generation=int(value.get("generation") or 0),
        version=str(value.get("version") or ""),
        cause=_cause(value.get("trace") or ""),
    )


def _is_stale(reported: TaskState, last: TaskState | None) -> bool:
    return (
        last is not None
        and last.state == "RUNNING"
        and reported.worker != last.worker
        and reported.generation < last.generation
    )


def _cause(trace: str) -> str:
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    cause = (
        causes[-1].removeprefix("Caused by:").strip()
        if causes
        else next(iter(lines), "no trace given")
    )
    return cause[:CAUSE_LENGTH_MAX]
