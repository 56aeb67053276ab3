"""What MirrorMaker 2 says of its own connectors and tasks.

In dedicated mode its REST server answers other workers only (`InternalMirrorResource`). The states
are in the compacted topic `mm2-status.<source>.internal` on the target (`KafkaStatusBackingStore`):
key `status-task-MirrorSourceConnector-0`, value JSON with `state`, `trace`, `worker_id`.
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


class TaskFailure(NamedTuple):
    """A connector or task (`MirrorSourceConnector-0`) that has failed, with the innermost cause it
    gave.
    """

    name: str
    cause: str


def status_topic(edge_alias: str) -> str:
    """The topic on the target that holds the states."""
    return f"mm2-status.{edge_alias}.internal"


class TaskState(NamedTuple):
    """The last that was said of a connector or task: `RUNNING`, `FAILED` and the like, and by which
    worker (`host:port`).

    `version`: of MirrorMaker 2, as far as it was told. `cause`: of what has failed.
    """

    state: str
    worker: str
    generation: int
    version: str
    cause: str


class TaskStates:
    """The last known state of every connector and task.

    `worker`: this one's address, as its REST listens.

    A worker that was paused or cut off does not know, once it is back, that its task runs elsewhere
    by now, and may say that it has failed. Such words are of an older generation of the workers'
    group than those of who runs it: they are passed over.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._last: dict[str, TaskState] = {}
        self._over: set[str] = set()  # said by a run before this one

    def update(self, records: Iterable[KeyValue]) -> None:
        """Take in records of the status topic, in their order. What is no status is passed over."""
        strange: list[str] = []
        for key, value in records:
            match = _KEY.fullmatch((key or b"").decode("utf-8", "replace"))
            if match is None:
                continue
            name = match["name"]
            if not value:  # it is there no longer
                self._last.pop(name, None)
                continue
            try:
                said = _state(json.loads(value))
            except (AttributeError, TypeError, ValueError, RecursionError):
                strange.append(name)
                continue
            if said.state == "RUNNING" or not _is_stale(said, self._last.get(name)):
                self._last[name] = said
                self._over.discard(name)
        if strange:
            _LOG.warning(
                "%d records of the status topic are none that MirrorMaker 2 writes, the first "
                "of %s; they are passed over: who "
                "else writes there?",
                len(strange),
                strange[0],
            )

    def mark_outdated(self) -> None:
        """Before a start: what an earlier run said is over.

        What runs on another worker goes on, and is not said again.
        """
        self._over |= {
            name
            for name, last in self._last.items()
            if last.state != "RUNNING" or last.worker == self._worker
        }

    def is_running(self, name: str) -> bool:
        """Whether this connector or task said that it runs."""
        return name in self._last and name not in self._over and self._last[name].state == "RUNNING"

    def to_dict(self) -> dict[str, TaskState]:
        """What each said last, by its name."""
        return dict(sorted(self._last.items()))

    @property
    def failures(self) -> list[TaskFailure]:
        """Those that have failed and were not started again."""
        return [TaskFailure(name, last.cause) for name, last in self._failed()]

    @property
    def local_failures(self) -> list[TaskFailure]:
        """Those of them that this worker ran; the others are for the supervisors of theirs."""
        return [
            TaskFailure(name, last.cause)
            for name, last in self._failed()
            if last.worker == self._worker
        ]

    def _failed(self) -> list[tuple[str, TaskState]]:
        return [
            (name, last)
            for name, last in self.to_dict().items()
            if last.state == "FAILED" and name not in self._over
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


def _is_stale(said: TaskState, last: TaskState | None) -> bool:
    return (
        last is not None
        and last.state == "RUNNING"
        and said.worker != last.worker
        and said.generation < last.generation
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
