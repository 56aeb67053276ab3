"""How a running tailer stands, in its memory alone: since when it is caught up, what ails it.

Kept in `standing.json`.

Beside the checkpoint, for those who ask from outside, also when the tailer is dead: then it says
what ailed it last. It is small whatever the number of files, replaced as a whole every few seconds,
and not synced: nothing depends on it.
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
    """One condition. `since_ms`: when it began, Unix milliseconds."""

    since_ms: int
    message: str

    @classmethod
    def from_condition(cls, condition: Condition) -> ConditionSnapshot:
        return cls(since_ms=condition.since_ms, message=condition.message)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TailerSnapshot:
    """One moment. `lag_seconds`: by source, since when all that was there is acknowledged; None:
    never yet. Times: Unix ms.
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


def save_snapshot(folder: Path, standing: TailerSnapshot) -> None:
    """Replace what is there; OSError is no reason to end."""
    temporary = folder / f".{FILE}.tmp"
    with contextlib.suppress(OSError):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(dataclasses.asdict(standing), file)
        temporary.replace(folder / FILE)


def load_snapshot(folder: Path) -> TailerSnapshot | None:
    """What was written last; None where nothing was, or it cannot be read."""
    try:
        fields: dict[str, Any] = json.loads((folder / FILE).read_bytes())
        latest = fields.pop("latest_trouble")
        troubles = [ConditionSnapshot(**one) for one in fields.pop("troubles")]
        services = [
            ServiceStatus(**one) for one in fields.pop("services", [])
        ]  # a version before told none
        return TailerSnapshot(
            **fields,
            services=services,
            troubles=troubles,
            latest_trouble=ConditionSnapshot(**latest) if latest else None,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
