"""Ledgers for tests: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import postgres as servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[servers.Postgres]:
    """One server for the session; each test has a database of its own."""
    if servers.binaries() is None:
        pytest.skip(servers.MISSING)
    with servers.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty ledger's URL, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.sqlite"
    server: servers.Postgres = request.getfixturevalue("postgres")
    return server.new_database()
