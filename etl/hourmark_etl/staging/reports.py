"""Host reports on their way to the ledger: of what a host says again and again, the first and the
last.

Hosts report every two seconds, and the ledger keeps what each said last, with what each report adds
to the host's losses. So of reports of one incarnation that follow one another and tell the same
losses, those between the first and the last change nothing. A backlog has 1,800 an hour of each
host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from hourmark.records.host_reports import HostReport
from hourmark_etl.staging.pieces import ReportRecord


@dataclasses.dataclass(slots=True)
class _Run:
    """Reports that tell the same losses; `report` is the content of the last."""

    first: ReportRecord
    last: ReportRecord
    report: HostReport

    def continues_with(self, report: HostReport) -> bool:
        """Whether this one, the host's next, is of it."""
        before = self.report
        follows = before.incarnation == report.incarnation and before.sequence < report.sequence
        is_later = (
            before.received_at_ms <= report.received_at_ms
        )  # else one of several may be overtaken, and the other not
        return follows and is_later and _losses(before) == _losses(report)


def drop_repeated_reports(
    told: Iterable[tuple[ReportRecord, HostReport]],
) -> tuple[ReportRecord, ...]:
    """Those that the ledger needs of all, which come in their partitions' order: a host's are in
    one.

    Of a host that reports through several sites' services when a loss was seen may be told later,
    as far as their clocks differ.
    """
    runs: list[_Run] = []
    latest: dict[str, _Run] = {}  # of each host
    for record, report in told:
        run = latest.get(report.host_id)
        if run is not None and run.continues_with(report):
            run.last, run.report = record, report
        else:
            latest[report.host_id] = _Run(record, record, report)
            runs.append(latest[report.host_id])
    return tuple(sorted({record for run in runs for record in (run.first, run.last)}))


def _losses(report: HostReport) -> list[tuple[str, int, int]]:
    """By source, whatever their order."""
    return sorted((s.source, s.lost_bytes, s.unknown_losses) for s in report.sources)
