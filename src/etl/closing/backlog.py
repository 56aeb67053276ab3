"""How many hours of each type one round takes on. Pure.

Every type that is ready takes part with its frontier hour; while there is room, a backlog's later hours join, one of each type at
a time, so that a long backlog of one type holds up nobody else's newest hour by more than a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from etl.ledger.rows import Frontier
from hourmark.hours import Hour

HOURS_MAX: Final = 4096  # (type, hour) pairs: some thousand folders are published in a minute or two
BYTES_MAX: Final = 8 << 30  # of datums: a round publishes nothing before all of it is written


def plan_round(
    ready: Sequence[Frontier],
    horizons_ms: Mapping[str, int],
    unlisted_bytes: Mapping[tuple[str, int], int],
    *,
    hours_max: int = HOURS_MAX,
    bytes_max: int = BYTES_MAX,
) -> dict[str, Hour]:
    """By type: the last hour of it in this round. `unlisted_bytes`: by type and hour (start, Unix seconds), of what is staged."""
    chosen = sorted(ready, key=lambda f: (f.hour, f.event_type))[:hours_max]
    last = {f.event_type: f.hour for f in chosen}
    room_hours = hours_max - len(chosen)
    room_bytes = bytes_max - sum(unlisted_bytes.get((f.event_type, f.hour.start_s), 0) for f in chosen)
    growing = [f.event_type for f in chosen]
    while growing and room_hours > 0:
        still = []
        for event_type in growing:
            following = last[event_type].next()
            size = unlisted_bytes.get((event_type, following.start_s), 0)
            if following.end_ms <= horizons_ms[event_type] and room_hours > 0 and size <= room_bytes:
                last[event_type] = following
                room_hours, room_bytes = room_hours - 1, room_bytes - size
                still.append(event_type)
        growing = still
    return last
