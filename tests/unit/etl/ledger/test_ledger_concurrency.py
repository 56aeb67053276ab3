"""Several drivers on one ledger, each with connections of its own, as processes on several machines
have: exactly one wins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event

import pytest
from tests.support import ledger_queries
from tests.support.records import HOUR, TOPICS, group, position, span, staged_batch, staged_file
from tests.support.rules import ledger_of_click

from hourmark.errors import UsageError
from hourmark_etl.errors import StaleDriver
from hourmark_etl.ledger import batches, frontiers
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import HourState, StagedBatch

DRIVERS = 4


@pytest.fixture
def drivers(ledger_url: str) -> Iterator[list[Database]]:
    """One ledger as several drivers see it; one type; one partition at offset 0."""
    made = [ledger_of_click(ledger_url), *(Database(ledger_url) for _ in range(DRIVERS - 1))]
    batches.insert_new_positions(made[0], made[0].acquire("consumer:default"), [position()])
    yield made
    for database in made:
        database.close()


def batch(name: str, start: int, end: int) -> StagedBatch:
    path = f"_staging/{name}/events.parquet"
    file = staged_file(path, rows=end - start, spans=(span(start, end),))
    return staged_batch(
        folder=f"_staging/{name}",
        starts=(position(start),),
        ends=(position(end),),
        files=(file,),
        groups=(group(path, rows=end - start),),
    )


def at_once(tasks: list[Callable[[], object]]) -> list[object]:
    """What each returned or raised (StaleDriver), all begun at the same moment."""
    barrier = Barrier(len(tasks))

    def run(task: Callable[[], object]) -> object:
        barrier.wait(30)
        try:
            return task()
        except StaleDriver as error:
            return error

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(run, tasks))


def refused(outcomes: list[object]) -> int:
    return sum(isinstance(o, StaleDriver) for o in outcomes)


def test_of_batches_that_begin_at_one_offset_exactly_one_is_committed(
    drivers: list[Database],
) -> None:
    lease = drivers[0].acquire("consumer:default")

    def commit(database: Database, staged: StagedBatch) -> None:
        batches.commit_batch(database, lease, staged)

    for begin in range(0, 50, 5):
        outcomes = at_once(
            [
                partial(commit, d, batch(f"{begin}-{n}", begin, begin + 5))
                for n, d in enumerate(drivers)
            ]
        )
        assert refused(outcomes) == DRIVERS - 1
    assert [p.next_offset for p in batches.positions(drivers[0], "cluster")] == [50]
    (opened,) = frontiers.frontiers(drivers[0], 3600)
    frontiers.freeze(drivers[0], drivers[0].acquire("closer"), [opened], TOPICS)
    assert sum(g.rows for g in ledger_queries.read_assigned_groups(drivers[0], "click", HOUR)) == 50


def test_whoever_took_the_lease_last_is_the_only_one_to_commit(drivers: list[Database]) -> None:
    def take_and_commit(database: Database, name: str) -> None:
        batches.commit_batch(database, database.acquire("consumer:default"), batch(name, 0, 5))

    outcomes = at_once([partial(take_and_commit, d, str(n)) for n, d in enumerate(drivers)])
    assert refused(outcomes) == DRIVERS - 1
    assert [p.next_offset for p in batches.positions(drivers[0], "cluster")] == [5]


def test_leases_taken_at_once_have_different_epochs(drivers: list[Database]) -> None:
    leases = at_once([partial(d.acquire, "closer") for d in drivers])
    # none is refused
    assert len({lease.epoch for lease in leases}) == DRIVERS  # type: ignore[attr-defined]


def test_of_closers_that_freeze_one_hour_exactly_one_does(drivers: list[Database]) -> None:
    lease = drivers[0].acquire("closer")
    (opened,) = frontiers.frontiers(drivers[0], 3600)
    outcomes = at_once([partial(frontiers.freeze, d, lease, [opened], TOPICS) for d in drivers])
    assert refused(outcomes) == DRIVERS - 1
    assert [f.state for f in frontiers.frontiers(drivers[1], 3600)] == [HourState.FROZEN]


def test_a_batch_is_listed_whole_or_not_at_all_whenever_the_freeze_comes(
    drivers: list[Database],
) -> None:
    consumer, closer = drivers[0].acquire("consumer:default"), drivers[1].acquire("closer")
    for begin in range(0, 100, 10):
        (opened,) = frontiers.frontiers(drivers[1], 3600)
        _, offsets = at_once(
            [
                partial(
                    batches.commit_batch, drivers[0], consumer, batch(str(begin), begin, begin + 10)
                ),
                partial(frontiers.freeze, drivers[1], closer, [opened], TOPICS),
            ]
        )
        assert isinstance(offsets, dict)
        listed = sum(g.rows for g in ledger_queries.read_assigned_groups(drivers[1], "click", HOUR))
        assert [p.next_offset for p in offsets["click"]] == [listed]
        frontiers.unfreeze_hours(
            drivers[1], closer, [(frontiers.frontiers(drivers[1], 3600)[0], ())]
        )


def test_a_transaction_that_fails_leaves_nothing_and_holds_up_nobody(
    drivers: list[Database],
) -> None:
    before = drivers[0].identity()
    with pytest.raises(UsageError), drivers[0].transaction() as connection:
        connection.exec_driver_sql("UPDATE positions SET next_offset = 99")
        raise UsageError("stop")
    assert drivers[1].identity() == before
    assert [p.next_offset for p in batches.positions(drivers[1], "cluster")] == [0]


def test_a_reader_sees_one_moment_while_others_write(drivers: list[Database]) -> None:
    lease = drivers[0].acquire("consumer:default")
    seen_first, written = Event(), Event()

    def read() -> tuple[int, int]:
        with drivers[1].reading() as connection:
            first = connection.exec_driver_sql("SELECT next_offset FROM positions").scalar_one()
            seen_first.set()
            assert written.wait(30)
            return first, connection.exec_driver_sql(
                "SELECT next_offset FROM positions"
            ).scalar_one()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert seen_first.wait(30)
        batches.commit_batch(drivers[0], lease, batch("one", 0, 5))
        written.set()
        assert reading.result(30) == (0, 0)


def test_first_opens_at_once_make_one_ledger(ledger_url: str) -> None:
    def open_it() -> tuple[str, int]:
        with contextlib.closing(Database(ledger_url)) as database:
            return database.identity()

    assert len(set(at_once([open_it] * DRIVERS))) == 1
