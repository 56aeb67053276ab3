"""Copies of a ledger where others are at work on it: of one commit, of this ledger, and never newer
than whom they are for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, select, text
from tests.support.postgres import Postgres

from hourmark.errors import Finding, Unavailable, UsageError
from hourmark_etl.errors import StaleDriver
from hourmark_etl.ledger import migrations, tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.engines import open_engine
from hourmark_etl.ledger.maintenance.backups import open_with_copy
from hourmark_etl.ledger.maintenance.downgrading import downgrade_ledger, restore_copy
from hourmark_etl.operators import ledger as commands

pytestmark = pytest.mark.slow

OLD = 2
BUCKET = {"type": "click", "hour": 3600, "grade": "proved", "manifest": "{}", "closed_at_ms": 1}
LOSS = {"host_id": "h", "source": "app", "from_ms": 1, "to_ms": 2, "lost_bytes": 3, "unknown": 0}


@pytest.fixture
def engine(ledger_url: str) -> Iterator[Engine]:
    made, _ = open_engine(ledger_url)
    yield made
    made.dispose()


def older_copy(url: str) -> str:
    """Made when a ledger of the first release's form was migrated.

    The ledger is of this version again.
    """
    later = downgrade_ledger(url, OLD)
    with Database(url) as database:
        commit = database.identity()[1]
    return re.sub(
        r"revision(.)\d+(.)commit(.)\d+", rf"revision\g<1>{OLD}\g<2>commit\g<3>{commit}", later
    )


def waits_for_the_driver(
    engine: Engine, database: Database, change: Callable[[], object]
) -> object:
    """What comes of the change, begun while a driver was in the middle of a commit that closes a
    bucket.
    """
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as connection:
            begun = pool.submit(change)
            with pytest.raises(StillWaiting):
                begun.result(timeout=2)
            connection.execute(tables.buckets.insert(), [BUCKET])
        return begun.result(timeout=60)


def test_a_copy_is_of_one_commit_while_a_driver_is_at_work(ledger_url: str, engine: Engine) -> None:
    with Database(ledger_url) as database:
        copy = str(
            waits_for_the_driver(engine, database, lambda: downgrade_ledger(ledger_url, OLD))
        )
        assert database.identity()[1] == 2
    with open_with_copy(engine, copy) as (connection, schema):
        of_copy = {"schema_translate_map": {None: schema}}
        assert connection.execute(
            select(tables.buckets.c.hour), execution_options=of_copy
        ).scalars().all() == [3600]
        asked = select(tables.meta.c.value).where(tables.meta.c.key == "commit")
        assert connection.execute(asked, execution_options=of_copy).scalar() == "1"


def test_what_a_driver_closes_meanwhile_keeps_a_copy_from_being_put_back(
    ledger_url: str, engine: Engine
) -> None:
    Database(ledger_url).close()
    copy = older_copy(ledger_url)
    with Database(ledger_url) as database:
        with pytest.raises(Finding, match="1 buckets have been closed since"):
            waits_for_the_driver(engine, database, lambda: restore_copy(ledger_url, copy))
        assert database.fetch(select(tables.buckets.c.hour)).scalars().all() == [3600]


@pytest.mark.slow
def test_a_commit_that_waits_while_a_copy_is_put_back_is_told_to_stop(postgres: Postgres) -> None:
    """The row that it waits for must still be there."""
    url = postgres.new_database()
    Database(url).close()
    engine, _ = open_engine(url)
    copy = older_copy(url)
    with Database(url) as database, ThreadPoolExecutor(1) as pool, engine.connect() as held:
        lease = database.acquire("closer")

        def commit() -> None:
            with database.transaction(lease):
                pass

        asked = held.begin()
        held.execute(
            text("LOCK TABLE buckets IN ACCESS EXCLUSIVE MODE")
        )  # puts the copy back, and stops in the middle
        back = pool.submit(restore_copy, url, copy)
        with pytest.raises(StillWaiting):
            back.result(timeout=2)
        with ThreadPoolExecutor(1) as other:
            waiting = other.submit(commit)
            with pytest.raises(StillWaiting):
                waiting.result(timeout=1)
            asked.rollback()
            assert back.result(timeout=60)[0] == OLD
            with pytest.raises(StaleDriver):
                waiting.result(timeout=60)
    engine.dispose()


def test_a_commit_number_is_not_given_twice_where_the_copy_is_ahead(
    ledger_url: str, engine: Engine
) -> None:
    with Database(ledger_url) as database:
        for _ in range(3):
            database.acquire("closer")
    copy = older_copy(ledger_url)
    with engine.begin() as connection:  # as an older backup of the whole ledger would have it
        connection.execute(text("UPDATE meta SET value = '1' WHERE key = 'commit'"))
    restore_copy(ledger_url, copy)
    with Database(ledger_url) as database:
        assert (database.identity()[1], database.epoch("closer")) == (5, 6), (
            "fenced, and again as it was migrated"
        )


def test_a_copy_of_another_ledger_is_neither_written_over_nor_taken_for_one(
    ledger_url: str, engine: Engine
) -> None:
    """Of a lost ledger that stood here, or, on PostgreSQL, of one in another schema of the
    database.
    """
    Database(ledger_url).close()
    copy = downgrade_ledger(ledger_url, OLD)
    Database(ledger_url).close()
    with engine.begin() as connection:
        connection.execute(text("UPDATE meta SET value = 'another' WHERE key = 'uuid'"))
        connection.execute(text("UPDATE meta SET value = '0' WHERE key = 'commit'"))
    with pytest.raises(Unavailable, match="exists and is not a copy of this ledger"):
        downgrade_ledger(ledger_url, OLD)
    with (
        Database(ledger_url, may_migrate=False) as database,
        open_with_copy(engine, copy) as (connection, schema),
    ):
        asked = select(tables.meta.c.value).where(tables.meta.c.key == "uuid")
        of_copy = connection.execute(
            asked, execution_options={"schema_translate_map": {None: schema}}
        ).scalar()
        assert database.identity() == ("another", 0)
        assert of_copy not in (None, "another")


def test_the_ledger_itself_is_no_copy_of_it(ledger_url: str, engine: Engine) -> None:
    with Database(ledger_url) as database:
        with database.transaction() as connection:
            connection.execute(tables.buckets.insert(), [BUCKET])
        itself = (
            "public"
            if engine.dialect.name == "postgresql"
            else ledger_url.removeprefix("sqlite:///")
        )
        with pytest.raises(UsageError, match="is the ledger itself"):
            restore_copy(ledger_url, itself)
        assert database.fetch(select(tables.buckets.c.hour)).scalars().all() == [3600]


def test_what_is_no_copy_of_any_ledger_is_named_as_that(
    ledger_url: str, engine: Engine, tmp_path: Path
) -> None:
    Database(ledger_url).close()
    other = "information_schema"
    if engine.dialect.name == "sqlite":
        (tmp_path / "notes").write_text(
            (
                "of the operator, and longer than what SQLite begins a file with: its name, "
                "sizes, counts"
            )
            * 9
        )
        other = f"{tmp_path}/notes"
    with pytest.raises(UsageError, match=f"{other} is not a copy of a ledger"):
        restore_copy(ledger_url, other)


@pytest.mark.parametrize("how", ["downgrade_ledger", "restore_copy"])
def test_a_ledger_that_does_not_answer_is_told_of_as_one(postgres: Postgres, how: str) -> None:
    url = postgres.new_database()
    Database(url).close()
    copy = older_copy(url)
    impatient = f"{url}&options=-c%20lock_timeout%3D300"
    with (
        Database(url) as database,
        database.transaction(),
        pytest.raises(
            Unavailable, match=r"does not respond: canceling statement due to lock timeout"
        ),
    ):
        downgrade_ledger(impatient, OLD) if how == "downgrade_ledger" else restore_copy(
            impatient, copy
        )


# The command


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "hourmark.toml"
    file.write_text(
        f'[storage]\nroot = "file://{tmp_path}/root"\n[etl]\nledger = '
        f'"sqlite:///{tmp_path}/ledger.sqlite"\n'
    )
    Database(f"sqlite:///{tmp_path}/ledger.sqlite").close()
    return file


def downgraded(config_file: Path, *arguments: str) -> BaseException | None:
    return (
        CliRunner()
        .invoke(
            commands.ledger,
            ["downgrade", "--to", "0.2.0", *arguments, "--config", str(config_file)],
        )
        .exception
    )


def test_a_copy_that_the_older_version_could_not_open_is_not_put_back(
    config_file: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    copy = downgrade_ledger(url, OLD)  # what was there before it, of this version
    Database(url).close()
    refused = downgraded(config_file, "--restore", copy)
    assert isinstance(refused, Finding) and f"has schema version {migrations.newest()}" in str(
        refused
    )


@pytest.mark.parametrize("how", ["downgrade_ledger", "restore_copy"])
def test_a_loss_that_is_told_while_the_operator_decides_is_not_dropped(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    copy, change = older_copy(url), getattr(commands, how)

    def later(*arguments: object) -> object:
        with Database(url) as database, database.transaction() as connection:
            connection.execute(tables.host_losses.insert(), [LOSS])
        return change(*arguments)

    monkeypatch.setattr(commands, how, later)
    refused = downgraded(config_file, *(("--restore", copy) if how == "restore_copy" else ()))
    assert isinstance(refused, Finding) and "losses of the sources app" in str(refused)
    with Database(url, may_migrate=False) as database:
        assert len(database.fetch(select(tables.host_losses.c.id)).all()) == 1
