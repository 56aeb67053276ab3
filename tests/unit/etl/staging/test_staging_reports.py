"""Thousands of hosts that report every two seconds: the ledger takes them as one, and tasks send on
what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, event, select
from tests.support.records import END, host_report

from hourmark.records.host_reports import HostReport, SourceReport
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.hosts.reporters import decode_report, put_reports, reporters
from hourmark_etl.staging.pieces import ReportRecord
from hourmark_etl.staging.stage import drop_repeated_reports

pytestmark = pytest.mark.slow

HOSTS, INCARNATIONS = ("a" * 32, "b" * 32), ("one", "two")
SOURCES = st.lists(
    st.builds(
        SourceReport,
        st.sampled_from(["app", "sys"]),
        st.none() | st.integers(END, END + 9),
        st.just(0),
        st.integers(0, 2),
        st.integers(0, 1),
    ),
    max_size=2,
    unique_by=lambda s: s.source,
).map(tuple)


def said(
    host: str, incarnation: str, sequence: int, at_ms: int, sources: tuple[SourceReport, ...]
) -> HostReport:
    return host_report(
        at_ms, host_id=host, incarnation=incarnation, sequence=sequence, sources=sources
    )


ANY = st.lists(
    st.builds(
        said,
        st.sampled_from(HOSTS),
        st.sampled_from(INCARNATIONS),
        st.integers(0, 9),
        st.integers(0, 12).map(lambda minute: END + 60_000 * minute),
        SOURCES,
    ),
    max_size=14,
)


@st.composite
def in_order(draw: st.DrawFn) -> list[HostReport]:
    """As hosts make them: each incarnation counts, and clocks agree."""
    steps = draw(st.lists(st.tuples(st.sampled_from(HOSTS), st.booleans(), SOURCES), max_size=14))
    incarnation = dict.fromkeys(HOSTS, 0)
    made = []
    for number, (host, restarted, sources) in enumerate(steps):
        incarnation[host] += restarted
        made.append(said(host, str(incarnation[host]), number, END + 2000 * number, sources))
    return made


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.sqlite")
    yield made
    made.close()


def taken(
    database: Database, batches: Sequence[Sequence[HostReport]]
) -> tuple[list[Any], list[Any]]:
    """What an empty ledger knows of hosts, and of their losses, once it took these, a batch after
    the other.
    """
    with database.transaction() as connection:
        connection.execute(delete(tables.reporters))
        connection.execute(delete(tables.host_losses))
    for reports in batches:
        with database.transaction() as connection:
            put_reports(connection, [decode_report(report, END) for report in reports])
    lost = database.fetch(select(tables.host_losses)).mappings().all()
    known = sorted(reporters(database), key=lambda r: (r.host_id, r.source))
    return known, [{name: value for name, value in row.items() if name != "id"} for row in lost]


def kept(reports: Sequence[HostReport]) -> list[HostReport]:
    records = [ReportRecord(0, offset, report.encode()) for offset, report in enumerate(reports)]
    return [
        HostReport.decode(r.datum)
        for r in drop_repeated_reports(zip(records, reports, strict=True))
    ]


@given(ANY, ANY)
def test_many_at_once_are_as_one_after_another(
    database: Database, before: list[HostReport], reports: list[HostReport]
) -> None:
    assert taken(database, [before, reports]) == taken(
        database, [before, *([report] for report in reports)]
    )


@given(in_order(), st.integers(0, 14))
def test_what_a_task_leaves_out_changes_nothing(
    database: Database, reports: list[HostReport], known: int
) -> None:
    before, new = reports[:known], reports[known:]
    assert taken(database, [before, kept(new)]) == taken(database, [before, new])


@given(ANY, ANY)
def test_nor_where_reports_come_late_and_clocks_differ_but_for_when_a_loss_was_seen(
    database: Database, before: list[HostReport], reports: list[HostReport]
) -> None:
    (known, lost), (known_of_all, lost_of_all) = (
        taken(database, [before, kept(reports)]),
        taken(database, [before, reports]),
    )
    assert known == known_of_all
    assert list(map(amount, lost)) == list(map(amount, lost_of_all))


def amount(loss: Mapping[str, Any]) -> list[Any]:
    return [loss[name] for name in ("host_id", "source", "lost_bytes", "unknown")]


def test_of_an_hour_of_reports_two_are_told() -> None:
    reports = [
        said(HOSTS[0], "one", n, END + 2000 * n, (SourceReport("app", END + 2000 * n, n, 7),))
        for n in range(1800)
    ]
    assert kept(reports) == [reports[0], reports[-1]]


def test_a_loss_is_told_with_the_report_before_it() -> None:
    lost = [0, 0, 0, 5, 5, 5]
    reports = [
        said(HOSTS[0], "one", n, END + n, (SourceReport("app", END, 0, bytes_),))
        for n, bytes_ in enumerate(lost)
    ]
    assert kept(reports) == [reports[0], reports[2], reports[3], reports[5]]


@pytest.mark.parametrize("count", [1, 3000])
def test_the_ledger_is_asked_no_more_often_for_thousands_than_for_one(
    database: Database, count: int
) -> None:
    """But for a question more for each 500 hosts."""
    taken(database, [])
    reports = [
        said(f"{number:032x}", "one", 0, END, (SourceReport("app", END, 0, 1),))
        for number in range(count)
    ]
    statements: list[str] = []
    with database.transaction() as connection:
        event.listen(connection, "before_cursor_execute", lambda *told: statements.append(told[2]))
        put_reports(connection, [decode_report(report, END) for report in reports])
    assert len(statements) <= 5 + count // 500, statements
    assert len(reporters(database)) == count
