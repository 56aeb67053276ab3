"""What hosts said last, source by source, and which of two reports is the later."""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, select

from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, HostReport
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, put, rows_named
from hourmark_etl.ledger.host_losses import HostLossRow, losses_added, put_losses
from hourmark_etl.model import ReportedSource, replace_nul

_LOG = logging.getLogger(__name__)

RENAMED_AFTER_MS: Final = 60_000  # thirty reports of the default pace


def reporters(database: Database) -> list[ReportedSource]:
    """The latest report of every source of every host."""
    return [ReportedSource(**row) for row in database.ask(select(tables.reporters)).mappings()]


def reporters_of(report: HostReport, now_ms: int) -> tuple[ReportedSource, ...]:
    """What a report says that is staged now, source by source.

    It cannot tell of a time that has yet to come.
    """
    heard_ms = (
        report.received_at_ms if now_ms - report.received_at_ms > CLOCKS_APART_MS_MAX else now_ms
    )
    return tuple(
        ReportedSource(
            host_id=replace_nul(report.host_id),
            source=replace_nul(s.source),
            host_name=replace_nul(report.host_name),
            kind=report.kind,
            incarnation=replace_nul(report.incarnation),
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


def put_reports(connection: Connection, reports: Iterable[tuple[ReportedSource, ...]]) -> None:
    """One after another, in as few calls of the database as for one: a backlog has all that
    thousands of hosts said meanwhile.

    A host's last report replaces all that it said before, so a source that it no longer has is no
    longer awaited. A report that arrives after a later one of the same incarnation (it was sent
    again through another service) says nothing new.
    """
    told = [report for report in reports if report]
    known = _known(connection, sorted({report[0].host_id for report in told}))
    changed, lost = set[str](), list[HostLossRow]()
    for report in told:
        before = known.get(report[0].host_id)
        if before and (last := next(iter(before.values()))):
            if is_overtaken(report[0], last):
                continue
            if why := why_foreign(report[0], last):
                _LOG.warning(
                    "a report of host %s (%.32s) is not believed: %s",
                    report[0].host_name,
                    report[0].host_id,
                    why,
                )
                continue
        lost += losses_added(report, before or {})
        known[report[0].host_id] = {s.source: s for s in report}
        changed.add(report[0].host_id)
    put_losses(connection, lost)
    now = [dataclasses.asdict(s) for host_id in sorted(changed) for s in known[host_id].values()]
    put(connection, tables.reporters, ["host_id"], now)


def _known(connection: Connection, host_ids: Sequence[str]) -> dict[str, dict[str, ReportedSource]]:
    """What these hosts said last, by host and source."""
    known = defaultdict[str, dict[str, ReportedSource]](dict)
    for row in rows_named(
        connection, select(tables.reporters), tables.reporters.c.host_id, host_ids
    ):
        known[row["host_id"]][row["source"]] = ReportedSource(**row)
    return dict(known)


def is_overtaken(said: ReportedSource, known: ReportedSource) -> bool:
    """Whether a report was overtaken by the one known.

    Between incarnations the services' clocks tell, within their agreement.

    A report with a lower sequence that comes minutes later was not sent before the known one: the
    known sequence is false, and must not silence the host.
    """
    if said.incarnation == known.incarnation:
        return (
            said.sequence < known.sequence
            and said.received_at_ms - known.received_at_ms < CLOCKS_APART_MS_MAX
        )
    return 0 < known.received_at_ms - said.received_at_ms < CLOCKS_APART_MS_MAX


def why_foreign(said: ReportedSource, known: ReportedSource) -> str:
    """Return why a report cannot be the host's own, human-readable; empty if it can.

    A host keeps its kind: a delivery service never becomes a tailer, and an incarnation of a tailer
    no service, which would not be awaited once it is silent. And it keeps its name while it
    reports; a host that was renamed is believed once its last report is a goodbye, or a minute old.
    So whoever may report for one host only cannot speak for another one that is live, though the
    host id is the other one's.
    """
    if known.kind == "service" and said.kind != "service":
        return "this host id is a delivery service's, and the report is a tailer's"
    if said.kind != known.kind and said.incarnation == known.incarnation:
        return "this incarnation is a tailer's, and the report is a delivery service's"
    apart_ms = abs(said.received_at_ms - known.received_at_ms)
    if said.host_name != known.host_name and not known.goodbye and apart_ms < RENAMED_AFTER_MS:
        return f"this host id reported as {known.host_name} {apart_ms / 1000:.1f} s before"
    return ""
