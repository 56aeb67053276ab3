"""Host reports on their way to the ledger, without repeated ones.

Hosts report every two seconds, and the ledger keeps the last report and the losses that each report
adds. Of consecutive reports of one incarnation with the same losses, only the first and the last
matter. A backlog holds 1,800 reports per hour and host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from hourmark.records.host_reports import HostReport
from hourmark_etl.staging.pieces import ReportRecord


@dataclasses.dataclass(slots=True)
class _Run:
    """Consecutive reports of a host with the same losses.

    Attributes:
        first: First report of the run.
        last: Last report of the run.
        report: Decoded content of the last report.
    """

    first: ReportRecord
    last: ReportRecord
    report: HostReport

    def continues_with(self, report: HostReport) -> bool:
        before = self.report
        follows = before.incarnation == report.incarnation and before.sequence < report.sequence
        is_later = (
            before.received_at_ms <= report.received_at_ms
        )  # else one of several may be overtaken, and the other not
        return follows and is_later and _losses(before) == _losses(report)


def drop_repeated_reports(
    reports: Iterable[tuple[ReportRecord, HostReport]],
) -> tuple[ReportRecord, ...]:
    """Drop host reports that add nothing to the ledger, and return the others by offset.

    Of each run of consecutive reports with the same losses, the first and the last are kept. If a
    host reports through services of several sites, the recorded time of a loss may be later by as
    much as the services' clocks differ.

    Args:
        reports: Records with their decoded reports, in partition order; all reports of a host are in
            one partition.
    """
    runs: list[_Run] = []
    latest: dict[str, _Run] = {}  # of each host
    for record, report in reports:
        run = latest.get(report.host_id)
        if run is not None and run.continues_with(report):
            run.last, run.report = record, report
        else:
            latest[report.host_id] = _Run(record, record, report)
            runs.append(latest[report.host_id])
    return tuple(sorted({record for run in runs for record in (run.first, run.last)}))


def _losses(report: HostReport) -> list[tuple[str, int, int]]:
    return sorted((s.source, s.lost_bytes, s.unknown_losses) for s in report.sources)
