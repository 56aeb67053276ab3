"""Data losses of hosts by source and time, for the manifests of the hours that they may affect.

Reports contain totals that never decrease. The increase since the previous report concerns lines
that were written after the time up to which the source had been delivered, and before the new
report was received. A loss that may affect several hours is named in the manifest of each of them.
A loss in the first report of a host is dated to the receipt of that report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypedDict

from sqlalchemy import Connection, delete, insert, select

from hourmark.records.hours import Hour
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import ReportedSource

KEPT_MS: Final = 30 * 86_400_000  # longer than any hour is held open
_SUM_MAX: Final = (1 << 63) - 1  # what markers and the ledger hold


class HostLossRow(TypedDict):
    """A row of the table `host_losses`: an additional data loss that a host reported for a source.

    Attributes:
        host_id: Id of the host.
        source: Name of the log source.
        from_ms: Earliest time at which the lost lines were written, Unix milliseconds.
        to_ms: Time at which the report was received, Unix milliseconds.
        lost_bytes: Number of bytes lost.
        unknown: Number of losses of unknown size.
    """

    host_id: str
    source: str
    from_ms: int
    to_ms: int
    lost_bytes: int
    unknown: int


class HostLoss(NamedTuple):
    """The data loss of one log source in a time span.

    Attributes:
        source: Name of the log source.
        from_ms: Start of the time span, Unix milliseconds.
        to_ms: End of the time span, Unix milliseconds.
        lost_bytes: Number of bytes lost.
        unknown_count: Number of losses of unknown size.
    """

    source: str
    from_ms: int
    to_ms: int
    lost_bytes: int
    unknown_count: int


def compute_added_losses(
    report: Iterable[ReportedSource], previous: Mapping[str, ReportedSource]
) -> list[HostLossRow]:
    """Compute the increase of a host's reported losses since its previous report.

    Args:
        report: The new report, one entry per source.
        previous: The previous report by source; empty for the first report of a host.

    Returns:
        One row per source whose losses have increased; empty if there is none.
    """
    return [row for s in report if (row := _added(s, previous.get(s.source)))]


def _added(report: ReportedSource, before: ReportedSource | None) -> HostLossRow | None:
    lost_bytes = max(0, report.lost_bytes - (before.lost_bytes if before else 0))
    unknown = max(0, report.unknown_losses - (before.unknown_losses if before else 0))
    if not (lost_bytes or unknown):
        return None
    from_ms = (before.caught_up_at_ms or 0) if before else report.received_at_ms
    return {
        "host_id": report.host_id,
        "source": report.source,
        "from_ms": min(from_ms, report.received_at_ms),
        "to_ms": report.received_at_ms,
        "lost_bytes": lost_bytes,
        "unknown": unknown,
    }


def put_losses(connection: Connection, new_losses: Sequence[HostLossRow]) -> None:
    """Insert data losses that hosts reported, and delete old ones.

    Losses are deleted if they are more than 30 days older than the newest of `new_losses`.

    Args:
        connection: The caller's transaction.
        new_losses: Rows to insert; if empty, nothing is changed.
    """
    if new_losses:
        newest_ms = max(row["to_ms"] for row in new_losses)
        connection.execute(
            delete(tables.host_losses).where(tables.host_losses.c.to_ms < newest_ms - KEPT_MS)
        )
        connection.execute(insert(tables.host_losses), new_losses)


def losses(database: Database) -> list[HostLoss]:
    """Return the data losses of all hosts and sources in the ledger.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        One entry per source and report that added a loss; empty if no data was lost.
    """
    table = tables.host_losses.c
    query = select(table.source, table.from_ms, table.to_ms, table.lost_bytes, table.unknown)
    return [HostLoss(*row) for row in database.fetch(query)]


def find_unrepeatable_sources(
    hour: Hour, sources: Collection[str], reporters: Iterable[ReportedSource]
) -> tuple[str, ...]:
    """Return the sources of an event type that cannot send data again after a loss.

    Hosts that sent a goodbye report (a report of an orderly shutdown) before the hour are ignored.

    Args:
        hour: Hour of the bucket.
        sources: Names of the sources that may deliver the event type.
        reporters: Latest report of each source.

    Returns:
        Sorted names of the sources for which at least one host cannot send lost data again.
    """
    there = (r for r in reporters if not (r.goodbye and r.received_at_ms < hour.start_s * 1000))
    return tuple(sorted({r.source for r in there if r.unrepeatable and r.source in sources}))


def sum_losses_in_hour(
    hour: Hour, sources: Collection[str], all_losses: Iterable[HostLoss]
) -> tuple[dict[str, int], dict[str, int]]:
    """Add up the data losses of hosts that may affect an hourly bucket, by log source.

    A loss may affect the bucket if its time span overlaps the bucket's hour.

    Args:
        hour: Hour of the bucket.
        sources: Names of the sources that may deliver the event type; others are ignored.
        all_losses: Losses of all hosts and sources.

    Returns:
        Two mappings by source: the number of lost bytes, and the number of losses of unknown size.
        Sources with a value of 0 are omitted.
    """
    lost, unknown = Counter[str](), Counter[str]()
    for loss in all_losses:
        if (
            loss.source in sources
            and loss.from_ms < hour.end_ms
            and loss.to_ms >= hour.start_s * 1000
        ):
            lost[loss.source] = min(lost[loss.source] + loss.lost_bytes, _SUM_MAX)
            unknown[loss.source] += loss.unknown_count
    return {s: count for s, count in sorted(lost.items()) if count}, {
        s: count for s, count in sorted(unknown.items()) if count
    }
