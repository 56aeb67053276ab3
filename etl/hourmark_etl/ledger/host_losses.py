"""What hosts lost, by source and time, for the manifests of the hours that it may concern; and what
they could not ask for again.

Reports tell totals that never fall; what one adds to the report before it was written after the
time up to which the source had claimed to be read, and before the new report was received. A loss
whose lines may belong to several hours is named by each. A host's first report is the only one that
this ledger can date no further back than its receipt.
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
    """As it is kept. Times are Unix milliseconds of the services' clocks."""

    host_id: str
    source: str
    from_ms: int
    to_ms: int
    lost_bytes: int
    unknown: int


class HostLoss(NamedTuple):
    """One source's.

    `unknown`: on so many occasions lines may have been lost, nobody knows how many.
    """

    source: str
    from_ms: int
    to_ms: int
    lost_bytes: int
    unknown: int


def losses_added(
    said: Iterable[ReportedSource], before: Mapping[str, ReportedSource]
) -> list[HostLossRow]:
    """What this report of one host adds to what was known of it, by source, until now."""
    return [row for s in said if (row := _added(s, before.get(s.source)))]


def _added(said: ReportedSource, before: ReportedSource | None) -> HostLossRow | None:
    lost_bytes = max(0, said.lost_bytes - (before.lost_bytes if before else 0))
    unknown = max(0, said.unknown_losses - (before.unknown_losses if before else 0))
    if not (lost_bytes or unknown):
        return None
    from_ms = (before.caught_up_at_ms or 0) if before else said.received_at_ms
    return {
        "host_id": said.host_id,
        "source": said.source,
        "from_ms": min(from_ms, said.received_at_ms),
        "to_ms": said.received_at_ms,
        "lost_bytes": lost_bytes,
        "unknown": unknown,
    }


def put_losses(connection: Connection, new: Sequence[HostLossRow]) -> None:
    """Keep them, and those of before no longer than any hour is held open."""
    if new:
        newest_ms = max(row["to_ms"] for row in new)
        connection.execute(
            delete(tables.host_losses).where(tables.host_losses.c.to_ms < newest_ms - KEPT_MS)
        )
        connection.execute(insert(tables.host_losses), new)


def losses(database: Database) -> list[HostLoss]:
    """All that are kept."""
    table = tables.host_losses.c
    query = select(table.source, table.from_ms, table.to_ms, table.lost_bytes, table.unknown)
    return [HostLoss(*row) for row in database.ask(query)]


def unrepeatable_of(
    hour: Hour, sources: Collection[str], reporters: Iterable[ReportedSource]
) -> tuple[str, ...]:
    """Sources that hosts received from senders whom nobody can ask again: of hosts that had not
    said goodbye before the hour.
    """
    there = (r for r in reporters if not (r.goodbye and r.received_at_ms < hour.start_s * 1000))
    return tuple(sorted({r.source for r in there if r.unrepeatable and r.source in sources}))


def losses_of(
    hour: Hour, sources: Collection[str], all_losses: Iterable[HostLoss]
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes lost, and occasions of unknown loss, by source: those that may concern the hour."""
    lost, unknown = Counter[str](), Counter[str]()
    for loss in all_losses:
        if (
            loss.source in sources
            and loss.from_ms < hour.end_ms
            and loss.to_ms >= hour.start_s * 1000
        ):
            lost[loss.source] = min(lost[loss.source] + loss.lost_bytes, _SUM_MAX)
            unknown[loss.source] += loss.unknown
    return {s: count for s, count in sorted(lost.items()) if count}, {
        s: count for s, count in sorted(unknown.items()) if count
    }
