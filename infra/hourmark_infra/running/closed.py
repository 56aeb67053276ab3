"""Whether all buckets up to some hour are closed, from what `hourmark bucket ls --json` says.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_EACH_MAX: Final = 10  # buckets of a type; of more a line tells about all
_CLOSED: Final = "closed"  # the state of a bucket; that of a type's next hour is another


def waiting(rows: Iterable[Mapping[str, Any]], types: Iterable[str], hour: str) -> dict[str, str]:
    """Types of which the bucket of this hour, or one before it, is not closed yet, and what each
    waits for.

    Only a type's next hour to close says that what is before is closed: a type without one waits,
    too. Hours of one length sort by their names.
    """
    following = {row["type"]: row for row in rows if row["state"] != _CLOSED}
    unknown = {name: "the ledger names no next hour" for name in types if name not in following}
    behind = {
        name: f"{row['hour']}: {row['waits_for']}"
        for name, row in following.items()
        if row["hour"] <= hour
    }
    return dict(sorted({**unknown, **behind}.items()))


def as_text(awaited: Mapping[str, str]) -> str:
    """What types wait for, in one line: most wait for the same."""
    of: dict[str, list[str]] = {}
    for name, what in awaited.items():
        of.setdefault(what, []).append(name)
    return "; ".join(f"{', '.join(names)} {what}" for what, names in of.items()) or "all are closed"


def next_hours(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By type, the next hour to close."""
    return {row["type"]: row["hour"] for row in rows if row["state"] != _CLOSED}


def closed_since(
    rows: Iterable[Mapping[str, Any]], since: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """Buckets with events that are closed and were not when these were the next hours."""
    return [
        row
        for row in rows
        if row["state"] == _CLOSED and row["hour"] >= since[row["type"]] and row["events"]
    ]


def told(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Lines for people about closed buckets, by type."""
    of: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        of.setdefault(row["type"], []).append(row)
    for name, buckets in sorted(of.items()):
        if len(buckets) <= _EACH_MAX:
            yield from (
                f"{name} {row['hour']}: {row['grade']}, {_events(row['events'])}" for row in buckets
            )
            continue
        grades = Counter(row["grade"] for row in buckets)
        hours, events = (
            sorted(row["hour"] for row in buckets),
            sum(row["events"] for row in buckets),
        )
        graded = ", ".join(f"{count} {grade}" for grade, count in grades.most_common())
        yield (
            f"{name} {hours[0]} to {hours[-1]}: {len(buckets)} buckets, {graded}, {_events(events)}"
        )


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"
