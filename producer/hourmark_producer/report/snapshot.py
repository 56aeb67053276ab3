"""Snapshot of a running tailer's memory: lag of its sources, ongoing conditions, services.

It is saved every `SAVE_INTERVAL_S` seconds as `standing.json` next to the checkpoint, for other
processes such as `hourmark tail status`, also after the tailer has died. The file is small whatever
the number of files, is replaced as a whole, and is not synced, because nothing depends on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Final

from hourmark_producer.conditions import Condition
from hourmark_producer.send.services import ServiceStatus

FILE: Final = "standing.json"
SAVE_INTERVAL_S: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConditionSnapshot:
    """An ongoing problem of the tailer, as part of a `TailerSnapshot`.

    Attributes:
        since_ms: When it began, in Unix milliseconds.
        message: Log message of its first occurrence.
    """

    since_ms: int
    message: str

    @classmethod
    def from_condition(cls, condition: Condition) -> ConditionSnapshot:
        return cls(since_ms=condition.since_ms, message=condition.message)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TailerSnapshot:
    """The state of a running tailer at one moment, as saved for other processes.

    Commands such as `hourmark tail status` read it.

    Attributes:
        pid: Process id of the tailer.
        started_at_ms: When the process started, in Unix milliseconds.
        written_at_ms: When this snapshot was taken, in Unix milliseconds.
        delivered_at_ms: When a byte range was last acknowledged, in Unix milliseconds; None for
            never.
        reported_at_ms: When a host report was last delivered, in Unix milliseconds; None for never.
        lag_seconds: Seconds since all data of a source was last acknowledged, by source; None for
            never.
        troubles: Ongoing problems, such as a service that does not respond, oldest first.
        latest_trouble: The problem that began most recently, even if it has ended; None if there
            has been none.
        services: State of each delivery service.
    """

    pid: int
    started_at_ms: int
    written_at_ms: int
    delivered_at_ms: int | None
    reported_at_ms: int | None
    lag_seconds: dict[str, float | None]
    troubles: list[ConditionSnapshot]
    latest_trouble: ConditionSnapshot | None
    services: list[ServiceStatus] = dataclasses.field(default_factory=list)


def save_snapshot(folder: Path, snapshot: TailerSnapshot) -> None:
    """Write a snapshot of the running tailer to its state folder, for other processes to read.

    The previous snapshot is replaced atomically. File system errors are ignored, because the
    snapshot is only informational.

    Args:
        folder: State folder of the tailer.
        snapshot: Current state of the tailer.
    """
    temporary = folder / f".{FILE}.tmp"
    with contextlib.suppress(OSError):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(dataclasses.asdict(snapshot), file)
        temporary.replace(folder / FILE)


def load_snapshot(folder: Path) -> TailerSnapshot | None:
    """Read the latest snapshot that a tailer saved, whether or not the tailer still runs.

    Args:
        folder: State folder of the tailer.

    Returns:
        The snapshot; None if there is none or if it is invalid.
    """
    try:
        fields: dict[str, Any] = json.loads((folder / FILE).read_bytes())
        latest = fields.pop("latest_trouble")
        troubles = [ConditionSnapshot(**one) for one in fields.pop("troubles")]
        services = [
            ServiceStatus(**one) for one in fields.pop("services", [])
        ]  # absent in files of older versions
        return TailerSnapshot(
            **fields,
            services=services,
            troubles=troubles,
            latest_trouble=ConditionSnapshot(**latest) if latest else None,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
