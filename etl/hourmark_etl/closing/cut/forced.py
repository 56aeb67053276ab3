"""Creates cuts for operators' overrides, which wait for nothing and list what was not verified.

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


def select_overridden_frontiers(
    frontiers: Iterable[Frontier], overrides: Mapping[str, Override]
) -> list[Frontier]:
    """Return the event types whose next hourly bucket has an operator's override.

    An override is an operator's order to close a bucket although data may be missing. Overrides for
    other hours are ignored.

    Args:
        frontiers: The next hour to close for each event type.
        overrides: Overrides by event type.

    Returns:
        The entries of `frontiers` whose hour has an override, in the given order.
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
    """Create the cut for hourly buckets that are closed by an operator's override.

    A cut is a consistent set of Kafka offsets that allows buckets to be closed. An override closes
    a bucket although data may be missing, so this function does not wait for log sources or
    records. If a cluster does not answer, the function raises no exception. The failed checks are
    listed in `unverified` of the cut.

    Args:
        frontiers: The next hour to close for each event type. Each hour has an override.
        sites: Interface to the Kafka clusters of all sites.
        progress: Interface to the progress of staging.
        audits: Maps the name of each central audit topic to its site id.
        clock: Clock for the current time.

    Returns:
        A cut that allows exactly these buckets to be closed.
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


def list_accepted_topics(types: Collection[str], *, all_overridden: bool) -> set[str]:
    """Return the topics whose lost records are accepted by operators' overrides.

    An override is an operator's order to close a bucket although data may be missing.

    Args:
        types: Event types that have an override.
        all_overridden: Whether all event types have an override. Only then are the control topics
            (audit records and host reports) included, because all types depend on them.

    Returns:
        Topic names at the edge.
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
