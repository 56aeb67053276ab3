"""The result of the demo: acknowledged events, and the judge's report as JSON and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hourmark.avro.framing import unframe
from hourmark.config.loading import Config
from hourmark.kafka.compacted_topic import read_topic
from hourmark.kafka.topic_names import AUDIT
from hourmark.records.audit import AuditRecord
from hourmark_verify.demo.configuration import TYPES
from hourmark_verify.judge.buckets import DEAD_LETTERS
from hourmark_verify.judge.report import FindingKind, JudgeReport, TypeCount
from hourmark_verify.judge.sources import NO_TYPE


def count_acknowledged(config: Config) -> Counter[str]:
    """Return the number of acknowledged events by type, from the edge audit topic.

    A range that was sent twice is counted once.

    Args:
        config: configuration with the edge cluster.

    Raises:
        Unavailable: if the topic cannot be read.
    """
    values = (value for _, value in read_topic(config.kafka.edge, AUDIT, cluster_name="edge"))
    return count_promises(
        AuditRecord.decode(unframe(value)[1]) for value in values if value is not None
    )


def count_promises(records: Iterable[AuditRecord]) -> Counter[str]:
    """Return the number of promised events by type, counting each range id once."""
    counts: Counter[str] = Counter()
    for record in {record.range_id: record for record in records}.values():
        for promise in record.promised:
            counts[promise.event_type] += promise.count
    return counts


GRADES: Final = ("proved", "timed_out", "forced")


def as_json(
    report: JudgeReport, acknowledged: Mapping[str, int], config: Config, seconds: float
) -> dict[str, Any]:
    """Return the result of the demo as a JSON-serializable object.

    Findings other than lost and doubled events are counted as `altered`.

    Args:
        report: report of the judge.
        acknowledged: number of acknowledged events by type.
        config: configuration that supplies the storage, Kafka and registry addresses.
        seconds: duration of the demo in seconds.
    """
    altered = sum(
        count
        for kind, count in report.counts.items()
        if kind not in (FindingKind.LOST, FindingKind.DOUBLED)
    )
    return {
        "types": {
            name: _type_json(name, report, acknowledged.get(name, 0))
            for name in sorted({*TYPES, DEAD_LETTERS})
        },
        "lost": report.counts[FindingKind.LOST],
        "doubled": report.counts[FindingKind.DOUBLED],
        "altered": altered,
        "buckets_root": config.storage.root,
        "webhdfs": config.storage.webhdfs,
        "bootstrap": config.kafka.edge.bootstrap,
        "registry": config.registry.url,
        "seconds": round(seconds, 1),
    }


def find_faults(report: JudgeReport, acknowledged: Mapping[str, int]) -> list[str]:
    """Return the reasons why the demo fails.

    Args:
        report: report of the judge.
        acknowledged: number of acknowledged events by type.

    Returns:
        One message per reason; an empty list if the demo succeeds.
    """
    found = [f"{count} {kind.value}" for kind, count in report.counts.items() if count]
    for name, count in sorted(acknowledged.items()):
        if (in_buckets := report.types.get(name, TypeCount()).in_buckets) < count:
            found.append(f"{count} events of {name} were acknowledged, {in_buckets} are in buckets")
    return found or ([] if report.passed else ["nothing was compared"])


def as_text(outcome: Mapping[str, Any]) -> str:
    """Return the result of the demo as a text table with one row per event type.

    Args:
        outcome: object that `as_json` returned.
    """
    header = (
        "type",
        "acknowledged",
        "in buckets",
        "late",
        "duplicates",
        "dead letters",
        "lost",
        "grades",
    )
    lines = [_row(header)]
    for name, of in outcome["types"].items():
        grades = " ".join(f"{count} {grade}" for grade, count in of["grades"].items() if count)
        numbers = (
            of[key]
            for key in (
                "acknowledged",
                "in_buckets",
                "late",
                "duplicates_removed",
                "dead_letters",
                "lost",
            )
        )
        lines.append(_row((name, *(f"{number:,}" for number in numbers), grades)))
    lines.append(
        f"\nlost {outcome['lost']}, doubled {outcome['doubled']}, altered "
        f"{outcome['altered']}; {outcome['seconds']} s"
    )
    lines.append(f"buckets: {outcome['buckets_root']}  (WebHDFS {outcome['webhdfs']})")
    return "\n".join(lines)


def _type_json(name: str, report: JudgeReport, acknowledged: int) -> dict[str, Any]:
    count = report.types.get(name, TypeCount())
    # Dead letters are counted with the type that they claimed; those that claimed none, with the
    # dead letters themselves.
    claimed = report.types.get(NO_TYPE, TypeCount()) if name == DEAD_LETTERS else count
    return {
        "acknowledged": acknowledged,
        "in_buckets": count.in_buckets,
        "late": count.late,
        "duplicates_removed": count.duplicates_removed,
        "dead_letters": claimed.dead_letters,
        "lost": claimed.lost,
        "grades": {grade: count.grades.get(grade, 0) for grade in GRADES},
    }


def _row(cells: tuple[str, ...]) -> str:
    first, *middle, last = cells
    return f"{first:<14}" + "".join(f"{cell:>14}" for cell in middle) + f"  {last}"
