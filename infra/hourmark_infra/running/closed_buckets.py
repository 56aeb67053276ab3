"""Pure functions that evaluate the output of `hourmark bucket ls --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_EACH_MAX: Final = 10  # a type with more buckets gets one summary line
_CLOSED: Final = "closed"  # state of a closed bucket; a type's next hour has another state


def unclosed_types(
    rows: Iterable[Mapping[str, Any]], types: Iterable[str], hour: str
) -> dict[str, str]:
    """Return the event types with an unclosed bucket at or before `hour`, and the reasons.

    Args:
        rows: Rows of `hourmark bucket ls --json`.
        types: Names of the event types to check.
        hour: Start of the hour in the format of the rows, for example `2026-11-21T05:00`.

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


def format_reasons(reasons: Mapping[str, str]) -> str:
    """Return one line that groups event types by the reason why their buckets are not closed.

    Args:
        reasons: Reasons by type name, from `unclosed_types`.

    Returns:
        For example `click, view 2026-11-21T05:00: the mirror`, or `all are closed` if `reasons` is
        empty.
    """
    types_by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        types_by_reason.setdefault(reason, []).append(name)
    texts = (f"{', '.join(names)} {reason}" for reason, names in types_by_reason.items())
    return "; ".join(texts) or "all are closed"


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
    buckets_by_type: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        buckets_by_type.setdefault(row["type"], []).append(row)
    for name, buckets in sorted(buckets_by_type.items()):
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
