"""Copies of a ledger where others are at work on it: of one commit, of this ledger, and never newer than whom they are for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting

import pytest
from sqlalchemy import Engine, select

from hourmark.errors import Finding
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.backups import beside
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.engines import open_engine
from hourmark_etl.ledger.stepping_down import put_back, step_down

OLD = 2
BUCKET = {"type": "click", "hour": 3600, "grade": "proved", "manifest": "{}", "closed_at_ms": 1}


@pytest.fixture
def engine(ledger_url: str) -> Iterator[Engine]:
    made, _ = open_engine(ledger_url)
    yield made
    made.dispose()


def older_copy(url: str) -> str:
    """Made when a ledger of the first release's form was migrated. The ledger is of this version again."""
    later = step_down(url, OLD)
    with Database(url) as database:
        commit = database.identity()[1]
    return re.sub(r"revision(.)\d+(.)commit(.)\d+", rf"revision\g<1>{OLD}\g<2>commit\g<3>{commit}", later)


def waits_for_the_driver(engine: Engine, database: Database, change: Callable[[], object]) -> object:
    """What comes of the change, begun while a driver was in the middle of a commit that closes a bucket."""
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as connection:
            begun = pool.submit(change)
            with pytest.raises(StillWaiting):
                begun.result(timeout=2)
            connection.execute(tables.buckets.insert(), [BUCKET])
        return begun.result(timeout=60)


def test_a_copy_is_of_one_commit_while_a_driver_is_at_work(ledger_url: str, engine: Engine) -> None:
    with Database(ledger_url) as database:
        copy = str(waits_for_the_driver(engine, database, lambda: step_down(ledger_url, OLD)))
        assert database.identity()[1] == 2
    with beside(engine, copy) as (connection, schema):
        of_copy = {"schema_translate_map": {None: schema}}
        assert connection.execute(select(tables.buckets.c.hour), execution_options=of_copy).scalars().all() == [3600]
        asked = select(tables.meta.c.value).where(tables.meta.c.key == "commit")
        assert connection.execute(asked, execution_options=of_copy).scalar() == "1"


def test_what_a_driver_closes_meanwhile_keeps_a_copy_from_being_put_back(ledger_url: str, engine: Engine) -> None:
    Database(ledger_url).close()
    copy = older_copy(ledger_url)
    with Database(ledger_url) as database:
        with pytest.raises(Finding, match="1 buckets were closed since"):
            waits_for_the_driver(engine, database, lambda: put_back(ledger_url, copy))
        assert database.ask(select(tables.buckets.c.hour)).scalars().all() == [3600]
