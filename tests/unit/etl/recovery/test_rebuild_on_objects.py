"""On an object store, the files of a deleted batch disappear one by one: a rebuild that meets some
of them lists everything once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.ledger_life import FIRST, LENGTH_S, Life
from tests.support.ledger_queries import read_assigned_groups
from tests.support.object_clients import memory_objects

from hourmark.config.loading import Config
from hourmark_etl.closing.engine import Engine
from hourmark_etl.ledger import frontiers
from hourmark_etl.ledger.database import Database
from hourmark_etl.model import AuditOffsets
from hourmark_etl.recovery.rebuild import rebuild

SECOND = FIRST.next()


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(memory_objects(), f"sqlite:///{tmp_path}/ledger.sqlite", ["click"])
    yield made
    made.database.close()


@pytest.mark.parametrize("kept", ["events", "audit"])
def test_a_folder_that_is_half_deleted_changes_nothing_of_what_is_proved(
    life: Life, tmp_path: Path, kept: str
) -> None:
    closed = life.take_in("click", FIRST, 3)
    life.close("click")
    life.produce("click", SECOND, 5)
    replaced = life.stage(commit=False)  # a driver that was killed before its commit
    life.start_driver()
    current = life.stage()
    assert (
        {f.kind for f in current.files} == {f.kind for f in replaced.files} == {"events", "audit"}
    )
    for file in (*closed.files, *replaced.files):
        if file.kind != kept:
            life.storage.delete(file.path)
    rebuilt = Database(f"sqlite:///{tmp_path}/rebuilt.sqlite")
    done = rebuild(life.outside(), rebuilt, lambda _: None)
    assert (done.lost, done.notes, done.types, done.buckets) == ([], [], 1, 1)
    life.go_on_with(rebuilt)
    life.stage()
    opened = life.frontier("click")
    assert opened.hour == SECOND
    frontiers.freeze(life.database, life.closer, [opened], {"click": ["events.click"]})
    promises = AuditOffsets.from_offsets(len(life.topics.logs["hourmark.audit"]))
    proof = Engine(life.storage, life.database, Config()).prove([opened], promises)["click"]
    assert (proof.promised, proof.findings) == (5, ())
    groups = read_assigned_groups(life.database, "click", SECOND)
    assert sum(g.rows for g in groups if g.hour_s == SECOND.start_s) >= 5, (
        "twice at most: ids drop what was staged again"
    )
    assert frontiers.frontiers(life.database, LENGTH_S)[0].hour == SECOND
