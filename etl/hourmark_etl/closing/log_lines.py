"""Log lines about buckets that were closed in one step. Pure.

Up to three buckets of a type get one line each. The many buckets of a backlog share one line per
type, because `hourmark bucket ls` shows each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.humanize import format_count

_EACH_MAX: Final = 3  # buckets of a type that get a line each


def closed_lines(manifests: Iterable[Manifest]) -> Iterator[str]:
    """Yield log lines about closed buckets, grouped by type.

    Args:
        manifests: Manifests of the closed buckets, in the order of closing for each type.
    """
    of: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        of.setdefault(manifest.type, []).append(manifest)
    for name, closed in of.items():
        if len(closed) > _EACH_MAX:
            grades = Counter(manifest.grade.value for manifest in closed)
            graded = ", ".join(
                f"{format_count(number, 'bucket')} closed as {grade}"
                for grade, number in grades.most_common()
            )
            yield f"{name} {closed[0].hour} to {closed[-1].hour}: {graded}: {_counts(closed)}"
        else:
            yield from (
                f"{name} {one.hour} closed as {one.grade.value}: {_counts([one])}" for one in closed
            )


def _counts(closed: Sequence[Manifest]) -> str:
    last = closed[-1]
    end_ms = Hour.parse(last.hour, last.bucket_seconds).end_ms
    return (
        f"{format_count(sum(one.events for one in closed), 'event')}, "
        f"{sum(sum(one.late.values()) for one in closed):,} late, "
        f"{format_count(sum(one.duplicates_removed for one in closed), 'duplicate')} removed, "
        f"{sum(one.unaudited for one in closed):,} unaudited, "
        f"{(last.closed_at_ms - end_ms) / 1000:.1f} s after its end"
    )
