"""The way up and down between versions: a copy before each change, and nothing that closed is ever
undone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result
from sqlalchemy import Connection, Engine, create_engine, inspect, select, text, update
from tests.contract.test_kept_formats import KEPT
from tests.support.closing import arrive, send
from tests.support.postgres import Postgres
from tests.support.simulator.truth import make_template
from tests.support.simulator.world import World

from hourmark.errors import Finding, Unavailable, UsageError
from hourmark.rollback.version import VERSIONS
from hourmark_etl.errors import EtlStop, OlderLedger, StaleDriver
from hourmark_etl.ledger import migrations, tables
from hourmark_etl.ledger.database import CLOSER, Database
from hourmark_etl.ledger.digests import check_digest
from hourmark_etl.ledger.engines import open_engine
from hourmark_etl.ledger.maintenance.downgrading import downgrade_ledger, restore_copy
from hourmark_etl.operators.ledger import ledger

pytestmark = pytest.mark.slow

OLD = 2


@pytest.fixture
def engine(ledger_url: str) -> Iterator[Engine]:
    made, _ = open_engine(ledger_url)
    yield made
    made.dispose()


def revision(engine: Engine) -> int | None:
    with engine.connect() as connection:
        return migrations.read_revision(connection)


def commit(database: Database) -> int:
    return database.identity()[1]


def copies(engine: Engine, url: str) -> list[str]:
    """Of the ledger, by name."""
    if engine.dialect.name == "postgresql":
        return sorted(
            name for name in inspect(engine).get_schema_names() if name.startswith("hourmark_")
        )
    file = Path(url.removeprefix("sqlite:///"))
    return sorted(
        str(path)
        for path in file.parent.glob(f"{file.name}.*")
        if not path.name.endswith(("-wal", "-shm"))
    )


def copy_of_old(engine: Engine, url: str) -> str:
    """The one that was made before the ledger was migrated up."""
    (copy,) = (
        name
        for name in copies(engine, url)
        if f"revision{'-' if '/' in name else '_'}{OLD}" in name
    )
    return copy


def close_a_bucket(database: Database) -> None:
    row = {"type": "click", "hour": 3600, "grade": "proved", "manifest": "{}", "closed_at_ms": 1}
    with database.transaction() as connection:
        connection.execute(tables.buckets.insert(), [row])


def test_a_fresh_ledger_needs_no_copy(ledger_url: str, engine: Engine) -> None:
    Database(ledger_url).close()
    assert copies(engine, ledger_url) == []


def test_down_and_up_again_keep_what_closed_and_copy_before_each(
    ledger_url: str, engine: Engine
) -> None:
    with Database(ledger_url) as database:
        close_a_bucket(database)
        before = database.identity()
    copy = downgrade_ledger(ledger_url, OLD)
    assert (revision(engine), copies(engine, ledger_url)) == (OLD, [copy])
    with Database(ledger_url) as database:
        assert database.identity() == (before[0], before[1] + 1)
        assert database.fetch(select(tables.buckets.c.type)).scalars().all() == ["click"]
    assert revision(engine) == migrations.newest()
    assert len(copies(engine, ledger_url)) == 2


def test_a_question_does_not_migrate_an_older_ledger(ledger_url: str, engine: Engine) -> None:
    Database(ledger_url).close()
    downgrade_ledger(ledger_url, OLD)
    with pytest.raises(
        OlderLedger,
        match=rf"schema version 2, but this version of Hourmark requires {migrations.newest()}",
    ):
        Database(ledger_url, may_migrate=False)
    assert revision(engine) == OLD


def test_a_driver_of_the_older_version_that_still_runs_changes_nothing_more(
    ledger_url: str,
) -> None:
    """It would drop what it does not know, such as losses of unknown size in reports."""
    with Database(ledger_url) as older:
        downgrade_ledger(ledger_url, OLD)
        lease = older.acquire(CLOSER)
        with Database(ledger_url) as newer:
            before = commit(newer)
            with pytest.raises(StaleDriver), older.transaction(lease):
                pass
            assert newer.acquire(CLOSER).epoch == before + 1


def test_a_driver_that_still_runs_when_the_ledger_steps_down_changes_nothing_more(
    ledger_url: str,
) -> None:
    with Database(ledger_url) as database:
        lease = database.acquire(CLOSER)
        downgrade_ledger(ledger_url, OLD)
        with pytest.raises(StaleDriver), database.transaction(lease):
            pass


def test_a_ledger_that_stepped_down_has_the_tables_of_the_version_that_it_is_for(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    Database(url).close()
    downgrade_ledger(url, OLD)
    with zipfile.ZipFile(KEPT / "0.2.0.zip") as kept:
        (tmp_path / "kept.sqlite").write_bytes(kept.read("ledger.sqlite"))
    found, wanted = (
        {
            name: [
                (c["name"], str(c["type"]), c["nullable"])
                for c in inspect(engine).get_columns(name)
            ]
            for name in names
        }
        for engine in (create_engine(url), create_engine(f"sqlite:///{tmp_path}/kept.sqlite"))
        for names in (inspect(engine).get_table_names(),)
    )
    assert found == wanted


def test_rows_that_the_version_of_revision_5_reads_have_the_digests_that_it_expects(
    tmp_path: Path,
) -> None:
    """It knows no leader epochs and no checksums of values, so no digest covers them and no span
    has them.
    """
    world = World(tmp_path, make_template(tmp_path))
    send(world, ["click", "view"] * 5)
    arrive(world)
    copy = tmp_path / "stepped-down.sqlite"
    with (
        contextlib.closing(sqlite3.connect(world.ledger)) as own,
        contextlib.closing(sqlite3.connect(copy)) as other,
    ):
        own.backup(other)
    world.end()
    url = f"sqlite:///{copy}"
    downgrade_ledger(url, 5)
    engine = create_engine(url)
    with engine.begin() as connection:
        paths = dict(
            connection.execute(select(tables.staged_files.c.id, tables.staged_files.c.path)).all()
        )
        for table in (tables.positions, tables.staged_files, tables.groups, tables.audit_groups):
            there = {column["name"] for column in inspect(engine).get_columns(table.name)}
            rows = (
                connection.execute(select(*(c for c in table.c if c.name in there)))
                .mappings()
                .all()
            )
            assert (rows and there < {*table.c.keys()}) or table is tables.staged_files
            for row in rows:
                check_digest(table, row, paths.get(row.get("file_id", 0), ""))
        spans = connection.execute(select(tables.staged_files.c.spans)).scalars()
        assert {
            len(span) for packed in spans for span in json.loads(zstandard.decompress(packed))
        } == {5}


def test_a_copy_is_put_back_where_nothing_closed_since(ledger_url: str, engine: Engine) -> None:
    Database(ledger_url).close()
    downgrade_ledger(ledger_url, OLD)
    with Database(ledger_url) as database:
        copy = copy_of_old(engine, ledger_url)
        lease, other = database.acquire(CLOSER), database.acquire("consumer:default")
        with database.transaction() as connection:
            row = {
                "host_id": "h",
                "source": "s",
                "from_ms": 1,
                "to_ms": 2,
                "lost_bytes": 3,
                "unknown": 0,
            }
            connection.execute(tables.host_losses.insert(), [row])
        uuid, last = database.identity()
        assert restore_copy(ledger_url, copy)[0] == OLD == revision(engine)
        for held in (lease, other):
            with pytest.raises(StaleDriver), database.transaction(held):
                pass
    with Database(ledger_url) as database:
        assert database.identity()[0] == uuid and commit(database) == last + 1
        assert database.epoch(CLOSER) == database.epoch("consumer:default") == last + 2, (
            "fenced, and again as it was migrated"
        )
        assert database.fetch(select(tables.host_losses)).all() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("since", "reason"),
    [
        (
            "INSERT INTO buckets VALUES ('click', 3600, 'proved', '{}', 1)",
            "1 buckets have been closed since",
        ),
        (
            "UPDATE frontiers SET state = 'sealed'",
            "an hour of click is sealed and may already be published",
        ),
        ("INSERT INTO rules VALUES ('rules/2-x', '{}')", "has published rules since"),
    ],
)
def test_a_copy_is_not_put_back_over_what_was_done_since(
    ledger_url: str, engine: Engine, since: str, reason: str
) -> None:
    with Database(ledger_url) as database, database.transaction() as connection:
        row = dict.fromkeys(("first_hour", "hour", "settled_next"), 0) | dict.fromkeys(
            ("shard", "sources"), "[]"
        )
        connection.execute(
            tables.frontiers.insert(), [row | {"type": "click", "state": "open", "digest": b""}]
        )
    downgrade_ledger(ledger_url, OLD)
    with Database(ledger_url) as database:
        copy = copy_of_old(engine, ledger_url)
        with database.transaction() as connection:
            connection.execute(text(since))
        last = commit(database)
        with pytest.raises(Finding, match=reason):
            restore_copy(ledger_url, copy)
        assert (revision(engine), commit(database)) == (migrations.newest(), last)


def test_a_copy_of_another_ledger_or_none_is_refused(ledger_url: str, engine: Engine) -> None:
    Database(ledger_url).close()
    copy = downgrade_ledger(ledger_url, OLD)
    with engine.begin() as connection:
        connection.execute(
            update(tables.meta).where(tables.meta.c.key == "uuid").values(value="another")
        )
    with pytest.raises(Finding, match="is a copy of ledger"):
        restore_copy(ledger_url, copy)
    with pytest.raises(UsageError, match="does not exist; copies are"):
        restore_copy(ledger_url, f"{copy}-none")


def test_without_room_for_a_copy_nothing_is_migrated(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    Database(url).close()
    downgrade_ledger(url, OLD)
    with sqlite3.connect(tmp_path / "ledger.sqlite") as ledger:
        ((commit,),) = ledger.execute("SELECT value FROM meta WHERE key = 'commit'").fetchall()
    (tmp_path / f"ledger.sqlite.revision-2-commit-{commit}").mkdir()  # stands where the copy would
    with pytest.raises(Unavailable, match="must be copied before it is changed"):
        Database(url)
    engine, _ = open_engine(url)
    assert revision(engine) == OLD
    engine.dispose()


def test_a_migration_that_is_interrupted_leaves_the_ledger_as_it_was(
    ledger_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Database(ledger_url).close()
    downgrade_ledger(ledger_url, OLD)

    def interrupted(connection: Connection) -> None:
        upgrade(connection)
        raise KeyboardInterrupt

    upgrade = migrations.upgrade
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(migrations, "upgrade", interrupted)
        Database(ledger_url)
    assert revision(engine) == OLD
    Database(ledger_url).close()
    assert revision(engine) == migrations.newest()
    assert copy_of_old(engine, ledger_url)


def test_a_user_who_may_make_no_schema_is_told_what_to_grant(postgres: Postgres) -> None:
    url = postgres.new_database()
    Database(url).close()
    downgrade_ledger(url, OLD)
    engine, _ = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE ROLE modest LOGIN"))
        connection.execute(text("GRANT ALL ON ALL TABLES IN SCHEMA public TO modest"))
        connection.execute(text("GRANT ALL ON SCHEMA public TO modest"))
    with pytest.raises(Unavailable, match=r"GRANT CREATE ON DATABASE .* TO modest"):
        Database(url.replace("//hourmark@", "//modest@"))
    assert revision(engine) == OLD
    engine.dispose()


def test_a_ledger_that_a_later_software_wrote_is_left_as_it_is(
    ledger_url: str, engine: Engine
) -> None:
    Database(ledger_url).close()
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '99'"))
    for may_migrate in (True, False):
        with pytest.raises(EtlStop, match="schema version 99"):
            Database(ledger_url, may_migrate=may_migrate)
    assert (revision(engine), copies(engine, ledger_url)) == (99, [])


# The commands


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "hourmark.toml"
    file.write_text(
        f'[storage]\nroot = "file://{tmp_path}/root"\n[etl]\nledger = '
        f'"sqlite:///{tmp_path}/ledger.sqlite"\n'
    )
    Database(f"sqlite:///{tmp_path}/ledger.sqlite").close()
    return file


def run(config_file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(ledger, [*arguments, "--config", str(config_file)])


def test_a_ledger_that_the_other_version_opens_is_left_as_it_is(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = migrations.newest()
    opens_it = dataclasses.replace(VERSIONS["0.3.0"], ledger=newest)
    monkeypatch.setattr("hourmark_etl.operators.ledger.VERSIONS", {"0.3.0": opens_it})
    refused = run(config_file, "downgrade", "--to", "0.3.0").exception
    assert isinstance(
        refused, UsageError
    ) and f"0.3.0 supports this ledger's schema version {newest}" in str(refused)
    assert [file.name for file in tmp_path.glob("ledger.sqlite.revision-*")] == []
    assert run(config_file, "upgrade").stdout.endswith(f"commit 0: schema version {newest}\n")


def test_commands_take_a_ledger_down_up_and_back(config_file: Path, tmp_path: Path) -> None:
    engine, _ = open_engine(f"sqlite:///{tmp_path}/ledger.sqlite")
    done = run(config_file, "downgrade", "--to", "0.2.0")
    assert done.exit_code == 0, done.output
    before = f"{tmp_path}/ledger.sqlite.revision-{migrations.newest()}-commit-0"
    assert f"schema version 2; a copy from before the change is in {before}" in done.stdout
    assert isinstance(run(config_file, "check").exception, OlderLedger)
    assert isinstance(run(config_file, "downgrade", "--to", "0.2.0").exception, OlderLedger)
    done = run(config_file, "upgrade")
    assert done.stdout.endswith(f"commit 1: schema version {migrations.newest()}\n")
    copy = f"{tmp_path}/ledger.sqlite.revision-2-commit-1"
    assert run(config_file, "downgrade", "--to", "0.2.0", "--restore", copy).exit_code == 0
    assert revision(engine) == OLD
    engine.dispose()


def test_a_ledger_that_the_older_version_could_not_go_on_with_is_left_as_it_is(
    config_file: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    engine, _ = open_engine(url)
    with engine.begin() as connection:
        row = {
            "host_id": "h",
            "source": "app",
            "from_ms": 1,
            "to_ms": 2,
            "lost_bytes": 3,
            "unknown": 0,
        }
        connection.execute(tables.host_losses.insert(), [row])
    done = run(config_file, "downgrade", "--to", "0.2.0")
    assert isinstance(
        done.exception, Finding
    ) and "losses of the sources app may concern hours" in str(done.exception)
    assert (revision(engine), copies(engine, url)) == (migrations.newest(), [])
    engine.dispose()
