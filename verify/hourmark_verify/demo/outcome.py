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
    """Return the number of events of each type that delivery services have acknowledged.

    The numbers are read from the audit topic of the edge cluster. Each audit record states how many
    events a delivery service acknowledged for one byte range of a file. A byte range that was sent
    several times is counted once.

    Args:
        config: Configuration with the edge cluster.

    Returns:
        Number of events by event type; empty if there are no audit records.

    Raises:
        Unavailable: The topic cannot be read.
    """
    values = (value for _, value in read_topic(config.kafka.edge, AUDIT, cluster_name="edge"))
    return sum_audit_records(
        AuditRecord.decode(unframe(value)[1]) for value in values if value is not None
    )


def sum_audit_records(records: Iterable[AuditRecord]) -> Counter[str]:
    """Return the number of acknowledged events of each type according to audit records.

    Each audit record states how many events a delivery service acknowledged for one byte range of a
    file. If several records have the same range id, only the last one is counted.

    Args:
        records: Decoded audit records.

    Returns:
        Number of events by event type; empty if there are no records.
    """
    counts: Counter[str] = Counter()
    for record in {record.range_id: record for record in records}.values():
        for promise in record.promised:
            counts[promise.event_type] += promise.count
    return counts


GRADES: Final = ("proved", "timed_out", "forced")


def as_json(
    report: JudgeReport, acknowledged: Mapping[str, int], config: Config, seconds: float
) -> dict[str, Any]:
    """Return the result of the demo as a JSON-serializable dict.

    Args:
        report: Report of the judge, which compares log files with buckets.
        acknowledged: Number of acknowledged events by event type.
        config: Configuration with the addresses of storage, Kafka and the schema registry.
        seconds: Duration of the demo in seconds.

    Returns:
        A dict with these keys:

        - `types`: counts of each event type, by its name
        - `lost`, `doubled`: number of findings of these kinds
        - `altered`: number of findings of all other kinds
        - `buckets_root`, `webhdfs`, `bootstrap`, `registry`: addresses
        - `seconds`: duration, rounded to one decimal
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
    """Return the reasons why the demo failed.

    The demo fails if the judge, which compares log files with buckets, reports findings. It also
    fails if the buckets contain fewer events of a type than were acknowledged, or if nothing was
    compared.

    Args:
        report: Report of the judge.
        acknowledged: Number of acknowledged events by event type.

    Returns:
        One message per reason; an empty list if the demo succeeded.
    """
    found = [f"{count} {kind.value}" for kind, count in report.counts.items() if count]
    for name, count in sorted(acknowledged.items()):
        if (in_buckets := report.types.get(name, TypeCount()).in_buckets) < count:
            found.append(f"{count} events of {name} were acknowledged, {in_buckets} are in buckets")
    return found or ([] if report.passed else ["nothing was compared"])


def as_text(outcome: Mapping[str, Any]) -> str:
    """Return the result of the demo as a text table with one row per event type.

    Args:
        outcome: Dict returned by `as_json`.
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
