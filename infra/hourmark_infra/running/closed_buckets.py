"""Pure functions that evaluate the output of `hourmark bucket ls --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_EACH_MAX: Final = 10  # buckets of a type; of more a line tells about all
_CLOSED: Final = "closed"  # the state of a bucket; that of a type's next hour is another


def unclosed_types(
    rows: Iterable[Mapping[str, Any]], types: Iterable[str], hour: str
) -> dict[str, str]:
    """Return the event types with an unclosed bucket at or before `hour`, and the reasons.

    Args:
        rows: Rows of `hourmark bucket ls --json`.
        types: Names of the event types to check.
        hour: Name of the hour, as in the rows.

    Returns:
        Reasons by type name, sorted; empty if all buckets are closed. A type whose rows contain no
        next hour counts as waiting.
    """
    following = {row["type"]: row for row in rows if row["state"] != _CLOSED}
    unknown = {name: "the ledger names no next hour" for name in types if name not in following}
    behind = {
        name: f"{row['hour']}: {row['waits_for']}"
        for name, row in following.items()
        if row["hour"] <= hour
    }
    return dict(sorted({**unknown, **behind}.items()))


def format_reasons(awaited: Mapping[str, str]) -> str:
    """Return one line that groups types by the reason for which they wait.

    Args:
        awaited: Reasons by type name. If empty, the line is `all are closed`.
    """
    of: dict[str, list[str]] = {}
    for name, what in awaited.items():
        of.setdefault(what, []).append(name)
    return "; ".join(f"{', '.join(names)} {what}" for what, names in of.items()) or "all are closed"


def next_hours(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the next hour to close by event type.

    Args:
        rows: Rows of `hourmark bucket ls --json`.
    """
    return {row["type"]: row["hour"] for row in rows if row["state"] != _CLOSED}


def buckets_closed_since(
    rows: Iterable[Mapping[str, Any]], since: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """Return the rows of nonempty buckets that were closed since an earlier listing.

    Args:
        rows: Rows of `hourmark bucket ls --json`.
        since: Next hour to close by event type in the earlier listing, from `next_hours`.

    Raises:
        KeyError: `since` lacks the type of a closed bucket.
    """
    return [
        row
        for row in rows
        if row["state"] == _CLOSED and row["hour"] >= since[row["type"]] and row["events"]
    ]


def describe_buckets(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines that describe closed buckets, sorted by event type.

    A type with more than ten buckets gets one summary line.

    Args:
        rows: Rows of closed buckets from `hourmark bucket ls --json`.
    """
    of: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        of.setdefault(row["type"], []).append(row)
    for name, buckets in sorted(of.items()):
        if len(buckets) <= _EACH_MAX:
            yield from (
                f"{name} {row['hour']}: {row['grade']}, {_count_events(row['events'])}"
                for row in buckets
            )
            continue
        grades = Counter(row["grade"] for row in buckets)
        hours, events = (
            sorted(row["hour"] for row in buckets),
            sum(row["events"] for row in buckets),
        )
        graded = ", ".join(f"{count} {grade}" for grade, count in grades.most_common())
        yield (
            f"{name} {hours[0]} to {hours[-1]}: {len(buckets)} buckets, {graded}, {_count_events(events)}"
        )


def _count_events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"
