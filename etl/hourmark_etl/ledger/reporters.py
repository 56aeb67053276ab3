"""What hosts said last, source by source, and which of two reports is the later."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sqlalchemy import Connection, select

from hourmark.host_reports import CLOCKS_APART_MS_MAX, HostReport
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, put
from hourmark_etl.ledger.host_losses import put_losses
from hourmark_etl.model import Reporter


def reporters(database: Database) -> list[Reporter]:
    """The latest report of every source of every host."""
    return [Reporter(**row) for row in database.ask(select(tables.reporters)).mappings()]


def reporters_of(report: HostReport, now_ms: int) -> tuple[Reporter, ...]:
    """What a report says that is staged now, source by source. It cannot tell of a time that has yet to come."""
    heard_ms = now_ms if abs(now_ms - report.received_at_ms) <= CLOCKS_APART_MS_MAX else report.received_at_ms
    return tuple(
        Reporter(
            host_id=report.host_id,
            source=s.source,
            host_name=report.host_name,
            kind=report.kind,
            incarnation=report.incarnation,
            sequence=report.sequence,
            received_at_ms=report.received_at_ms,
            caught_up_at_ms=None if s.caught_up_at_ms is None else min(s.caught_up_at_ms, now_ms),
            pending_bytes=s.pending_bytes,
            lost_bytes=s.lost_bytes,
            unknown_losses=s.unknown_losses,
            unrepeatable=s.unrepeatable,
            goodbye=report.goodbye,
            heard_at_ms=heard_ms,
        )
        for s in report.sources
    )


def put_reports(connection: Connection, reports: Sequence[tuple[Reporter, ...]]) -> None:
    """A host's last report replaces all that it said before, so a source that it no longer has is no longer awaited.

    A report that arrives after a later one of the same incarnation (it was sent again through another service) says nothing new.
    """
    table = tables.reporters
    for report in reports:
        if not report:
            continue
        said = report[0]
        known = connection.execute(
            select(table.c.incarnation, table.c.sequence, table.c.received_at_ms).where(table.c.host_id == said.host_id)
        ).first()
        if known is not None and is_overtaken(said, *known):
            continue
        put_losses(connection, report)
        put(connection, table, ["host_id"], [dataclasses.asdict(s) for s in {s.source: s for s in report}.values()])


def is_overtaken(said: Reporter, incarnation: str, sequence: int, received_at_ms: int) -> bool:
    """Whether a report was overtaken by the one known. Between incarnations the services' clocks tell, within their agreement."""
    if said.incarnation == incarnation:
        return said.sequence < sequence
    return 0 < received_at_ms - said.received_at_ms < CLOCKS_APART_MS_MAX
