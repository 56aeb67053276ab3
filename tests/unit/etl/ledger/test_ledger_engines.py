"""Ledger URLs: what is refused, by the name of the setting and without a password; what an
unreachable server is called.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.support.postgres import Postgres

from hourmark.config.redaction import redact_setting
from hourmark.errors import ConfigError, Unavailable
from hourmark_etl.errors import EtlStop
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.engines import check_driver_placement, check_network_disk
from hourmark_etl.ledger.tables import meta

SQLITE = "sqlite:////var/lib/hourmark/ledger.sqlite"
POSTGRESQL = "postgresql://me:secret@db.example/hourmark?password=secret"
MOUNTS = """\
/dev/sda / ext4 rw 0 0
filer:/x /srv/shared\\040files nfs4 rw 0 0
/dev/sdb /srv/shared\\040files/local xfs rw 0 0
sshfs#x /mnt/ssh fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "sqlite:///relative.sqlite",
        "sqlite://",
        "mysql://me:secret@host/db",
        "postgresql+psycopg2://me:secret@host/db",
        "postgresql:/me:secret@host",
    ],
)
def test_a_wrong_ledger_url_is_refused_by_the_name_of_the_setting_and_without_its_password(
    url: str,
) -> None:
    with pytest.raises(ConfigError, match=r"etl\.ledger") as refused:
        Database(url)
    assert "secret" not in str(refused.value)


def test_a_password_is_never_shown() -> None:
    assert redact_setting(POSTGRESQL) == "postgresql://(hidden)@db.example/hourmark?(hidden)"


def test_a_server_that_is_away_is_unavailable_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(
        Unavailable, match=r"etl\.ledger = postgresql.*check that its server is running"
    ) as refused:
        Database(f"postgresql://me:secret@/db?host={tmp_path}")
    assert "secret" not in str(refused.value)


@pytest.mark.slow
def test_a_server_that_goes_and_comes_back_is_unavailable_in_between(postgres: Postgres) -> None:
    database = Database(postgres.new_database())
    before = database.identity()
    postgres.stop()
    try:
        with pytest.raises(Unavailable), database.reading():
            pass
        with pytest.raises(Unavailable), database.transaction():
            pass
    finally:
        postgres.start()
    assert database.identity() == before
    assert database.acquire("closer").epoch == before[1] + 1
    database.close()


def test_a_server_outlives_the_thread_that_started_it(postgres: Postgres) -> None:
    """Faults heal in threads of their own, and the kernel takes those for parents."""
    database = Database(postgres.new_database())
    postgres.stop()
    healing = threading.Thread(target=postgres.start)
    healing.start()
    healing.join()
    for _ in range(20):
        assert database.identity() and postgres.pid is not None
        threading.Event().wait(0.05)
    database.close()


def test_a_connection_lost_within_a_transaction_is_unavailable_and_changes_nothing(
    postgres: Postgres,
) -> None:
    database = Database(postgres.new_database())
    before = database.identity()
    with pytest.raises(Unavailable), database.transaction() as connection:
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
    assert database.identity() == before
    database.close()


def test_a_damaged_file_is_refused_with_a_next_step(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"hello" * 1000)
    with pytest.raises(EtlStop, match=r"etl\.ledger.*hourmark ledger rebuild"):
        Database(f"sqlite:///{tmp_path}/ledger.sqlite")


def test_readers_cannot_write_on_postgresql(postgres: Postgres) -> None:
    database = Database(postgres.new_database())
    with pytest.raises(Exception, match="read-only"), database.reading() as connection:
        connection.execute(meta.delete())
    database.close()


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.submit.deployMode": "cluster"},
        {"spark.submit.deployMode": "client", "spark.kubernetes.submitInDriver": "true"},
    ],
)
def test_a_file_is_refused_where_the_cluster_places_the_driver(conf: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="Use PostgreSQL"):
        check_driver_placement(SQLITE, conf)
    check_driver_placement(POSTGRESQL, conf)


@pytest.mark.parametrize(
    "conf", [{}, {"spark.master": "yarn", "spark.submit.deployMode": "client"}]
)
def test_a_file_is_fine_where_the_driver_stays(conf: dict[str, str]) -> None:
    check_driver_placement(SQLITE, conf)


@pytest.mark.parametrize("file", ["/srv/shared files/ledger.sqlite", "/mnt/ssh/a/ledger.sqlite"])
def test_a_file_on_a_network_file_system_is_refused(file: str) -> None:
    with pytest.raises(ConfigError, match=r"write-ahead log is not safe"):
        check_network_disk(Path(file), MOUNTS)


@pytest.mark.parametrize(
    "file",
    ["/srv/shared files/local/ledger.sqlite", "/srv/sharedfiles/ledger.sqlite", "/ledger.sqlite"],
)
def test_a_file_on_a_disk_is_fine(file: str) -> None:
    check_network_disk(Path(file), MOUNTS)
