"""A cut by an operator's override: it waits for nothing and names what it could not verify.

Promises below the audit topic's staging position are still compared with rows, and the seal names
what is missing. The seal accepts offset gaps, so that later hours can be proved again. An override
for a type accepts gaps of the type's own topic. Gaps of audit records and host reports concern
every type, so they are accepted only if every type has an override.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from hourmark.clock import Clock
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import CONTROL, events_topic
from hourmark_etl.closing.cut.cut import (
    ClosingCut,
    SiteClusters,
    StagingProgress,
    describe_not_staged,
    limit_lines,
)
from hourmark_etl.closing.cut.readiness import LatestReports, describe_clock_difference, readiness
from hourmark_etl.ledger.overrides import Override
from hourmark_etl.model import AuditOffsets, Frontier

_NO_DEADLINE: Final = 0  # an override waives immediately


def overridden_frontiers(
    frontiers: Iterable[Frontier], overrides: Mapping[str, Override]
) -> list[Frontier]:
    """Return the frontiers whose hour has an override.

    An override is an operator's order to close an hour despite missing data.
    """
    return [
        f
        for f in frontiers
        if (o := overrides.get(f.event_type)) is not None and o.hour_s == f.hour.start_s
    ]


def take_forced_cut(
    frontiers: Collection[Frontier],
    sites: SiteClusters,
    progress: StagingProgress,
    audits: Mapping[str, str],
    clock: Clock,
) -> ClosingCut:
    """Return a cut of hours that an operator forces to close, without waiting for completeness.

    Unavailable clusters are recorded as unverified instead of raising.

    Args:
        frontiers: Frontiers, each with an override for its hour.
        sites: The clusters of all sites.
        progress: Staging progress.
        audits: The site of each central audit topic, by topic name.
        clock: Clock of the closer.

    Returns:
        A cut whose `unverified` lists, by type, all checks that failed or were not possible.
    """
    now_ms = clock.now_ms()
    reports = LatestReports(progress.reporters())
    apart = describe_clock_difference(reports, now_ms)
    unverified, waived = {}, {}
    unanswered = _answer(lambda: sites.check([f.event_type for f in frontiers]))
    gaps = sites.gaps() | ({CONTROL[0]: unanswered} if unanswered else {})

    def unsure(*topics: str) -> list[str]:
        return [
            *(gaps[topic] for topic in topics if topic in gaps),
            *_behind(sites, progress, topics),
        ]

    control = unsure(*CONTROL)
    for f in frontiers:
        ready = readiness(f, reports, now_ms, _NO_DEADLINE)
        if ready.waived:
            waived[f.event_type] = ready.waived
        named = [
            *([apart] if apart else []),
            *ready.waits_for,
            *control,
            *unsure(events_topic(f.event_type)),
        ]
        unverified[f.event_type] = limit_lines(list(dict.fromkeys(named)))
    return ClosingCut(
        taken_at_ms=now_ms,
        watermarks_ms={f.event_type: f.hour.end_ms for f in frontiers},
        audit_next=AuditOffsets.from_offsets(
            {
                site: progress.next_offset_to_stage(Partition(topic, 0))
                for topic, site in audits.items()
            }
        ),
        waived=waived,
        unverified=unverified,
    )


def accepted_topics(types: Collection[str], *, all_overridden: bool) -> set[str]:
    """Return the topics whose offset gaps are accepted when hours of these types are forced.

    Args:
        types: Event types with an override.
        all_overridden: Whether every type has one; then control topics are included.
    """
    return {*(events_topic(t) for t in types), *(CONTROL if all_overridden else ())}


def _behind(sites: SiteClusters, progress: StagingProgress, topics: Sequence[str]) -> list[str]:
    found: list[str] = []

    def look() -> None:
        found.extend(sites.find_unmirrored_topics(sites.edge_ends(topics)).values())
        ends = sites.central_ends(topics)
        found.extend(describe_not_staged(progress.find_unstaged_partitions(ends), ends))

    if failed := _answer(look):
        found.append(failed)
    return found


def _answer(ask: Callable[[], None]) -> str | None:
    try:
        ask()
    except Unavailable as error:
        return f"not verified, because {error}"
    return None
