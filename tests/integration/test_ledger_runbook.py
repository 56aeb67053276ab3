"""The runbook of the ledger's database, played on a real PostgreSQL server that is stopped."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import postgres
from tests.support.revisions import CLICK, HOUR, declared
from tests.support.rules_servers import MemoryRegistry, MemoryTopic, outside
from tests.support.runbooks import OVER, SEEN, TO_DO, Page

from hourmark.config.toml_text import render_toml
from hourmark_declare.apply import apply_declarations
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.rules import LedgerRules

pytestmark = pytest.mark.long


class Operator:
    """Runs the commands of a page with the configuration of this ledger."""

    def __init__(self, server: postgres.Postgres, folder: Path) -> None:
        self.server = server
        self.config = folder / "hourmark.toml"
        url = server.new_database()
        with Database(url) as database:
            ledger = outside(LedgerRules(database), MemoryRegistry(), MemoryTopic())
            apply_declarations(ledger, declared(CLICK), HOUR)
        root = (folder / "root").as_uri()
        self.config.write_text(render_toml({"etl": {"ledger": url}, "storage": {"root": root}}))

    def execute(self, line: str) -> str:
        """What it prints, on stdout and stderr."""
        if line == "sudo systemctl restart postgresql":
            self.server.start()
            return ""
        program, *words = shlex.split(line)
        assert program == "hourmark", line
        done = subprocess.run(
            [sys.executable, "-m", "hourmark", *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOURMARK_CONFIG": str(self.config)},
        )
        return done.stdout + done.stderr


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with postgres.running_or_skipped() as server:
        yield Operator(server, tmp_path)


def test_a_database_that_is_away(operator: Operator) -> None:
    page = Page.read("ledger-database-down")
    names = {"TYPE": CLICK.name, "HOUR": str(HOUR)}
    operator.server.stop()
    page.play(SEEN, operator.execute, names)
    page.play(TO_DO, operator.execute)
    page.play(OVER, operator.execute, names)
