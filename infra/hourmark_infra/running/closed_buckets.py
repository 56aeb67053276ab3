"""Pure functions that evaluate the output of `hourmark bucket ls --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from hourmark.printing import name_some

_EACH_MAX: Final = 10  # a type with more buckets gets one summary line
_REASONS_MAX: Final = 3
_TYPES_MAX: Final = 5  # per reason
_CLOSED: Final = "closed"  # state of a closed bucket; a type's next hour has another state


def unclosed_types(
    rows: Iterable[Mapping[str, Any]], types: Iterable[str], hour: str
) -> dict[str, str]:
    """Return the event types that have unclosed buckets up to a given hour.

    Args:
        rows: Rows of `hourmark bucket ls --json`. For each type, the row whose state is not
            `closed` describes the next bucket to close.
        types: Names of the event types to check.
        hour: Label of the last bucket that must be closed, in the format of the rows, such as
            `2026-11-21T05`.

    Returns:
        Maps the name of each such type to a text with the label of its next bucket and the reason
        why the bucket is not closed. Types without a next bucket in `rows` are included. Empty if
        all buckets up to `hour` are closed.
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
    """Format the reasons why buckets are not closed as one line of text.

    Types with the same reason are grouped. The text contains at most three reasons, the most common
    one first, and at most five types for each.

    Args:
        reasons: Maps each event type name to a reason, as returned by `unclosed_types`.

    Returns:
        A text such as `click, view 2026-11-21T05: the mirror`; `all are closed` if `reasons` is
        empty.
    """
    types_by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        types_by_reason.setdefault(reason, []).append(name)
    by_count = sorted(types_by_reason.items(), key=lambda item: -len(item[1]))
    texts = [
        f"{name_some(names, _TYPES_MAX)} {reason}" for reason, names in by_count[:_REASONS_MAX]
    ]
    if others := by_count[_REASONS_MAX:]:
        count = sum(len(names) for _, names in others)
        texts.append(f"{count} more type{'s' * (count > 1)} for other reasons")
    return "; ".join(texts) or "all are closed"


def next_hours(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the hour of the next bucket to close for each event type.

    Args:
        rows: Rows of `hourmark bucket ls --summary --json`.

    Returns:
        Maps each type name to the label of an hour, such as `2026-11-21T05`. The label is empty for
        a type without closed buckets, because its first bucket may be that of an older hour.
    """
    return {row["type"]: (row["next_hour"] or "") if row["last_hour"] else "" for row in rows}


def buckets_closed_since(
    rows: Iterable[Mapping[str, Any]], since: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """Return the nonempty buckets that were closed after an earlier listing.

    Args:
        rows: Rows of `hourmark bucket ls --json`.
        since: Result of `next_hours` for the earlier listing. For types that are absent, or whose
            label is empty, all closed buckets are returned.

    Returns:
        The rows of these buckets, in the order of `rows`.
    """
    return [
        row
        for row in rows
        if row["state"] == _CLOSED and row["hour"] >= since.get(row["type"], "") and row["events"]
    ]


def find_open_hour(
    hour: str,
    before: Iterable[Mapping[str, Any]],
    closed: Iterable[Mapping[str, Any]],
    open_rows: Collection[Mapping[str, Any]],
) -> str | None:
    """Return the earliest open bucket that may contain lines of a `hourmark run --once`.

    The run waits only until the buckets before `hour` are closed. All its lines are in closed
    buckets if no events are staged (stored by the ETL, but in no bucket yet), and if each type has
    since closed a bucket that was open before the lines were delivered.

    Args:
        hour: Label of the first bucket for which the run did not wait.
        before: Rows of `hourmark bucket ls --summary --json` before the lines were delivered.
        closed: Rows of closed buckets afterwards, from `hourmark bucket ls --json`.
        open_rows: Rows of `hourmark bucket ls --state open --json` afterwards.

    Returns:
        `hour`, or a later label if all staged events are of later hours; None if all lines of the
        run are in closed buckets.
    """
    before = list(before)
    if staged := [str(row["staged_hour"]) for row in open_rows if row.get("staged_hour")]:
        return max(hour, min(staged))
    since = next_hours(before)
    closing = {row["type"] for row in closed if row["hour"] >= since.get(row["type"], "")}
    was_open = all(row["next_state"] == "open" for row in before)
    is_staged = was_open and {row["type"] for row in open_rows} <= closing
    return None if is_staged else hour


def describe_buckets(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Describe closed buckets for the terminal: their grades and numbers of events.

    The lines are sorted by event type name.

    Args:
        rows: Rows of closed buckets from `hourmark bucket ls --json`.

    Yields:
        One line for each bucket, or a single summary line for a type with more than ten buckets.
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
