"""The latest report of each host and source, and the order of two reports."""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, select

from hourmark.records.host_reports import CLOCKS_APART_MS_MAX, HostReport
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, replace_rows, select_by_names
from hourmark_etl.ledger.hosts.host_losses import HostLossRow, compute_added_losses, put_losses
from hourmark_etl.model import ReportedSource, replace_nul

_LOG = logging.getLogger(__name__)

RENAMED_AFTER_MS: Final = 60_000  # thirty reports of the default pace


def reporters(database: Database) -> list[ReportedSource]:
    """Return the latest report of each log source of each host.

    A report is the periodic message in which a tailer or delivery service states how far it has
    delivered its sources.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        One entry per host and source; empty if no host has reported.
    """
    return [ReportedSource(**row) for row in database.fetch(select(tables.reporters)).mappings()]


def decode_report(report: HostReport, now_ms: int) -> tuple[ReportedSource, ...]:
    """Convert a host report into one entry per log source of the host.

    Args:
        report: The report, as read from Kafka.
        now_ms: Current time, Unix milliseconds. A source's `caught_up_at_ms` that is later than
            this is replaced by this time.

    Returns:
        The entries in the order of the report's sources; empty if the host has none.
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
    """Store host reports in order, each replacing the previous report of its host.

    A source that is missing in a host's newest report is deleted, so buckets no longer wait for it.
    Reports that arrive out of order are ignored. Reports that another host has sent under the same
    host id are rejected, and a warning is logged. The losses that a report adds are stored too. The
    number of database calls does not depend on the number of reports.

    Args:
        connection: The caller's transaction.
        reports: Reports in order of arrival, each with one entry per source of the host.
    """
    given = [report for report in reports if report]
    known = _known(connection, sorted({report[0].host_id for report in given}))
    changed, lost = set[str](), list[HostLossRow]()
    for report in given:
        before = known.get(report[0].host_id)
        if before and (last := next(iter(before.values()))):
            if is_outdated_report(report[0], last):
                continue
            if why := explain_foreign_report(report[0], last):
                _LOG.warning(
                    "a report of host %s (%.32s) was rejected: %s",
                    report[0].host_name,
                    report[0].host_id,
                    why,
                )
                continue
        lost += compute_added_losses(report, before or {})
        known[report[0].host_id] = {s.source: s for s in report}
        changed.add(report[0].host_id)
    put_losses(connection, lost)
    now = [dataclasses.asdict(s) for host_id in sorted(changed) for s in known[host_id].values()]
    replace_rows(connection, tables.reporters, ["host_id"], now)


def _known(connection: Connection, host_ids: Sequence[str]) -> dict[str, dict[str, ReportedSource]]:
    known = defaultdict[str, dict[str, ReportedSource]](dict)
    for row in select_by_names(
        connection, select(tables.reporters), tables.reporters.c.host_id, host_ids
    ):
        known[row["host_id"]][row["source"]] = ReportedSource(**row)
    return dict(known)


def is_outdated_report(report: ReportedSource, latest: ReportedSource) -> bool:
    """Return whether a host report is older than the latest stored report of the same host.

    - If both reports have the same incarnation (one run of a tailer or delivery service, from start
      to end), the new report is outdated if its sequence number is lower, unless it was received at
      least 5 minutes after the stored report.
    - If the incarnations differ, the new report is outdated if it was received before the stored
      report, by less than 5 minutes.

    Larger differences (`CLOCKS_APART_MS_MAX`) are attributed to a wrong sequence number or clock,
    which must not block the host's reports forever.

    Args:
        report: The new report, as the entry of any of its sources.
        latest: The latest stored report of the same host, as the entry of any of its sources.

    Returns:
        True if the new report must be ignored.
    """
    if report.incarnation == latest.incarnation:
        return (
            report.sequence < latest.sequence
            and report.received_at_ms - latest.received_at_ms < CLOCKS_APART_MS_MAX
        )
    return 0 < latest.received_at_ms - report.received_at_ms < CLOCKS_APART_MS_MAX


def explain_foreign_report(report: ReportedSource, latest: ReportedSource) -> str:
    """Explain why a report cannot come from the host that it names.

    A report is rejected in three cases, so that a client cannot report under the id of another live
    host:

    - The stored report is from a delivery service, and the new one from a tailer (log agent).
    - One of the reports is from a tailer and the other from a delivery service, but both have the
      same incarnation, the id of one run of a process.
    - The reports have different host names and were received within a minute, and the stored report
      is not a goodbye (a report of an orderly shutdown).

    Args:
        report: The new report, as the entry of any of its sources.
        latest: The latest stored report of the same host id, as the entry of any of its sources.

    Returns:
        A readable reason; an empty string if the report is accepted.
    """
    if latest.kind == "service" and report.kind != "service":
        return "this host id is a delivery service's, and the report is a tailer's"
    if report.kind != latest.kind and report.incarnation == latest.incarnation:
        return "this incarnation is a tailer's, and the report is a delivery service's"
    apart_ms = abs(report.received_at_ms - latest.received_at_ms)
    if report.host_name != latest.host_name and not latest.goodbye and apart_ms < RENAMED_AFTER_MS:
        return f"this host id reported as {latest.host_name} {apart_ms / 1000:.1f} s before"
    return ""
