"""One way to make and change the tables, which agrees with how the code sees them; other versions
are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, text

from hourmark_etl.errors import EtlStop
from hourmark_etl.ledger import migrations, tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.engines import open_engine


@pytest.fixture
def engine(ledger_url: str) -> Iterator[Engine]:
    """Of a ledger that was just made."""
    Database(ledger_url).close()
    made, _ = open_engine(ledger_url)
    yield made
    made.dispose()


def test_the_revisions_make_what_the_code_expects(engine: Engine) -> None:
    with engine.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []


def test_the_comparison_sees_a_difference(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE blockers"))
        connection.execute(text("ALTER TABLE overrides ADD COLUMN more TEXT"))
        found = compare_metadata(MigrationContext.configure(connection), tables.metadata)
    assert [difference[0] for difference in found] == ["add_table", "remove_column"]


def test_opening_again_changes_nothing(ledger_url: str) -> None:
    first, second = Database(ledger_url), Database(ledger_url)
    assert first.identity() == second.identity()
    first.close()
    second.close()


def test_a_newer_ledger_is_refused_with_both_numbers(engine: Engine, ledger_url: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '99'"))
    with pytest.raises(
        EtlStop,
        match=rf"schema version 99, but this version of Hourmark supports at most {migrations.newest()}",
    ):
        Database(ledger_url)


def test_a_ledger_from_before_the_first_release_is_refused_with_a_next_step(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    old = create_engine(url)
    with old.begin() as connection:
        connection.execute(text("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)"))
        connection.execute(text("INSERT INTO meta VALUES ('schema_version', '1')"))
    old.dispose()
    with pytest.raises(EtlStop, match="hourmark ledger rebuild"):
        Database(url)


def test_revisions_are_numbered_in_one_line() -> None:
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    numbers = [int(revision.revision) for revision in script.walk_revisions()]
    assert numbers == list(range(migrations.newest(), 1, -1))
