"""What MirrorMaker 2 says of its own connectors and tasks.

In dedicated mode its REST server answers other workers only (`InternalMirrorResource`). The states are in the compacted topic
`mm2-status.<source>.internal` on the target (`KafkaStatusBackingStore`): key `status-task-MirrorSourceConnector-0`, value
JSON with `state`, `trace`, `worker_id`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from hourmark.topic_follower import KeyValue

_KEY: Final = re.compile(r"status-(connector|task)-(?P<name>.+)")
CAUSE_LENGTH_MAX: Final = 500


class Failure(NamedTuple):
    """A connector or task (`MirrorSourceConnector-0`) that has failed, with the innermost cause it gave."""

    name: str
    cause: str


def status_topic(edge_alias: str) -> str:
    """The topic on the target that holds the states."""
    return f"mm2-status.{edge_alias}.internal"


class TaskStates:
    """The last known state of every connector and task. `worker`: this one's address, as its REST listens."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._failed: dict[str, Failure] = {}
        self._running: dict[str, str] = {}  # and on which worker

    def update(self, records: Iterable[KeyValue]) -> None:
        """Take in records of the status topic, in their order. What is no status is not looked at."""
        for key, value in records:
            match = _KEY.fullmatch((key or b"").decode("utf-8", "replace"))
            if match is None:
                continue
            state = json.loads(value) if value else {}
            name, said = match["name"], state.get("state")
            self._running.pop(name, None)
            self._failed.pop(name, None)
            if said == "RUNNING":
                self._running[name] = str(state.get("worker_id"))
            elif said == "FAILED":
                self._failed[name] = Failure(name, _cause(state.get("trace") or ""))

    def forget(self) -> None:
        """Before a start: what an earlier run said is over. What runs on another worker goes on, and is not said again."""
        self._failed.clear()
        self._running = {name: on for name, on in self._running.items() if on.partition("/")[0] != self._worker}

    def running(self, name: str) -> bool:
        """Whether this connector or task said that it runs."""
        return name in self._running

    @property
    def failed(self) -> list[Failure]:
        """Those that have failed and were not started again."""
        return sorted(self._failed.values())


def _cause(trace: str) -> str:
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    cause = causes[-1].removeprefix("Caused by:").strip() if causes else next(iter(lines), "no trace given")
    return cause[:CAUSE_LENGTH_MAX]
