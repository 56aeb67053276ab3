"""Ledgers for tests, the same on SQLite and on PostgreSQL; and worlds to close hours in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import postgres as servers
from tests.support.fake_hdfs import FakeHdfs, serving_hdfs
from tests.support.ledger_life import Life
from tests.support.memory_storage import MemoryStorage
from tests.support.simulator.truth import make_template
from tests.support.simulator.world import World

from hourmark_etl.storage import Storage, WebHdfs, webhdfs_files


@pytest.fixture(scope="session")
def postgres() -> Iterator[servers.Postgres]:
    """One server for the session; each test has a database of its own."""
    with servers.running_or_skipped() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty ledger's URL, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.sqlite"
    server: servers.Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger file for worlds to begin with."""
    return make_template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def world(tmp_path: Path, template: Path) -> Iterator[World]:
    """Everything that exists in a history, to be played step by step."""
    made = World(tmp_path, template)
    yield made
    made.end()


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHdfs]:
    """A NameNode and a DataNode that can be told to misbehave."""
    monkeypatch.setattr(webhdfs_files, "GIVE_UP_S", 0.2)
    with serving_hdfs() as server:
        yield server


@pytest.fixture
def storage(hdfs: FakeHdfs) -> Storage:
    """The client of that server."""
    return WebHdfs(
        filesystem="hdfs://namenode:8020",
        root="/root",
        namenodes=(hdfs.address,),
        user="tester",
        replication=1,
        retry_pauses_s=(0.0, 0.0),
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration: its root and its ledger are in the test's folder."""
    made = tmp_path / "hourmark.toml"
    made.write_text(
        f'[storage]\nroot = "file://{tmp_path}/root"\n[etl]\nledger = '
        f'"sqlite:///{tmp_path}/ledger.sqlite"\n'
    )
    return made


@pytest.fixture
def life(ledger_url: str) -> Iterator[Life]:
    """Types click and view on a ledger of each kind, to be staged and closed step by step."""
    made = Life(MemoryStorage(), ledger_url)
    yield made
    made.database.close()
