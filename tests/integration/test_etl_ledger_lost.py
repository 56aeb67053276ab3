"""The ledger of a real ETL is lost as a whole: rebuilt by the command line, it knows no less, and
closing goes on.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.support.delivery import DirectDelivery
from tests.support.etl import EtlRun
from tests.support.ledger_queries import rewrite
from tests.support.waiting import wait_for

from hourmark.kafka.topic_names import AUDIT, HOSTS
from hourmark.records.hours import Hour
from hourmark_etl.buckets.verify import find_late_clashes, verify_bucket
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.frontiers import frontiers

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(600)]
TYPES = (CLICK,) = (f"click-{uuid.uuid4().hex[:8]}",)


def control_positions(database: Database) -> dict[str, int]:
    """Of promises and reports, by topic: one partition each."""
    with database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT topic, next_offset FROM positions").all()
    return {str(topic): int(offset) for topic, offset in rows if topic.endswith((AUDIT, HOSTS))}


def skip_again(database: Database, begun: dict[str, int]) -> None:
    """What other tests on the same stack reported and promised before is none of this ETL's
    business.
    """
    for topic, offset in begun.items():
        rewrite(database, tables.positions, tables.positions.c.topic == topic, next_offset=offset)


def staged_rows(run: EtlRun) -> int:
    with Database(run.config.etl.ledger) as database, database.reading() as connection:
        events = connection.exec_driver_sql(
            f"SELECT coalesce(sum(rows), 0) FROM staged_groups WHERE type = '{CLICK}'"
        ).scalar_one()
        promised = connection.exec_driver_sql(
            f"SELECT coalesce(sum(promised), 0) FROM audit_groups WHERE type = '{CLICK}'"
        )
        return int(min(events, promised.scalar_one()))


@pytest.mark.parametrize("run", ["hdfs", "s3"], indirect=True)
def test_a_lost_ledger_is_rebuilt_and_closing_goes_on(
    run: EtlRun, delivery: DirectDelivery, first_hour: Hour, tmp_path: Path
) -> None:
    run.wait_until_staging()
    with Database(run.config.etl.ledger) as database:
        begun = control_positions(database)
    second, third = first_hour.next(), first_hour.next().next()
    for hour in (first_hour, second):
        delivery.deliver(delivery.make(CLICK, [hour.start_s * 1000 + n for n in range(50)]))
        delivery.report(hour.end_ms)
        run.closed(CLICK, hour)
        run.closed("dead-letters", hour)
    delivery.deliver(delivery.make(CLICK, [third.start_s * 1000 + n for n in range(40)]))
    delivery.deliver(delivery.make(CLICK, [first_hour.start_s * 1000 + 500 + n for n in range(7)]))
    wait_for(lambda: staged_rows(run) == 147, "all is staged")
    run.kill()
    assert run.told("ledger", "check")["findings"] == []
    with Database(run.config.etl.ledger) as lost:
        before, (ledger, _) = frontiers(lost, 60), lost.identity()
    file = Path(run.config.etl.ledger.removeprefix("sqlite:///"))
    for part in file.parent.glob(f"{file.name}*"):
        part.rename(tmp_path / f"lost-{part.name}")
    told = run.told("ledger", "rebuild", "--into", run.config.etl.ledger)
    assert (told["ledger"], told["notes"], told["lost"]) == (ledger, [], [])
    with Database(run.config.etl.ledger) as made:
        assert frontiers(made, 60) == before
        skip_again(made, begun)
    assert run.told("ledger", "check")["findings"] == []
    run.start()
    delivery.report(third.end_ms)
    manifest = run.closed(CLICK, third)
    assert (manifest.events, manifest.grade.value, manifest.ledger) == (47, "proved", ledger)
    verdicts = [verify_bucket(run.storage, CLICK, hour) for hour in (first_hour, second, third)]
    assert [v.findings for v in verdicts] == [(), (), ()]
    assert find_late_clashes(run.storage, CLICK, verdicts) == []
