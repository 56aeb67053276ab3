"""Evaluates the age of open hours against topic retention. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hourmark.kafka.topic_names import events_topic
from hourmark.records.hours import Hour
from hourmark_declare.doctor.check_result import CheckResult, finding_result, passed_result

CHECK: Final = "retention"
_PART: Final = 0.5  # share of the retention after which a finding leaves time to resolve it
_H_MS: Final = 3_600_000


def evaluate_retention(
    cluster: str, open_hours: Mapping[str, Hour], retention_ms: Mapping[str, int], now_ms: int
) -> Iterator[CheckResult]:
    """Evaluate whether each type's oldest open hour is younger than half of its topic's retention.

    Args:
        cluster: Name of the cluster in results.
        open_hours: Oldest open hour by type.
        retention_ms: `retention.ms` of the topic by type; negative means unlimited.
        now_ms: Current time, Unix milliseconds.

    Yields:
        Findings, or one passed result if there are none.
    """
    found = []
    for name, hour in sorted(open_hours.items()):
        kept_ms, age_ms = retention_ms.get(name, -1), now_ms - hour.start_s * 1000
        if kept_ms < 0 or age_ms <= kept_ms * _PART:
            continue
        what = (
            f"hour {hour} is open and {age_ms / _H_MS:.1f} h old, and {events_topic(name)} "
            f"keeps {kept_ms / _H_MS:.1f} h"
        )
        comes_of = (
            "what was not staged may be deleted already, and what is staged cannot be staged again"
            if age_ms > kept_ms
            else "unstaged records will be deleted soon"
        )
        found.append(
            finding_result(
                CHECK,
                f"{cluster} {name}",
                f"{what}: {comes_of}",
                f"`hourmark bucket why {name} {hour}` shows what it waits for; raise the "
                "topic's retention.ms until it is closed",
            )
        )
    yield from found
    if open_hours and not found:
        yield passed_result(
            CHECK,
            cluster,
            "the oldest open hour is "
            f"{min(open_hours.values(), key=lambda h: h.start_s)}; topics keep more",
        )
