"""A ledger is not rebuilt from a marker that is not as it was written: it would begin to stage
behind what it never had.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from sqlalchemy import select
from tests.support.ledger_life import FIRST, Life

from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import BadMarker
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.recovery.rebuild import rebuild

SECOND = FIRST.next()


@pytest.fixture
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path_factory.mktemp('rebuilt')}/ledger.sqlite")
    yield made
    made.close()


@pytest.fixture
def closed(life: Life) -> Life:
    """Two hours, with events."""
    life.report("web1")
    life.produce("click", FIRST, 5)
    life.take_in("view", FIRST, 2)
    life.take_in("click", SECOND, 3)
    life.close("click")
    life.close("click")
    return life


def changed(life: Life, hour: Hour, *, with_digest: bool) -> None:
    """An offset of its marker is another."""
    path = f"{hour.bucket_path('click')}/{MARKER}"
    marker = life.storage.read(path)
    if not with_digest:
        marker = re.sub(rb" blake2b=[0-9a-f]{32}", b"", marker)
    altered = re.sub(rb'"next": ?(\d+)', lambda match: match[0] + b"7", marker)
    assert altered != marker
    life.storage.delete(path)
    life.storage.write_new(path, altered)


@pytest.mark.slow
@pytest.mark.parametrize(("hour", "with_digest"), [(FIRST, True), (SECOND, True), (FIRST, False)])
def test_an_altered_marker_is_named_and_nothing_is_written(
    closed: Life, target: Database, hour: Hour, with_digest: bool
) -> None:
    changed(closed, hour, with_digest=with_digest)
    with pytest.raises(BadMarker, match=r"[Rr]estore it from a copy"):
        rebuild(closed.outside(), target, lambda _: None)
    assert list(target.fetch(select(tables.buckets))) == []


def test_what_closes_has_a_digest_of_itself(closed: Life) -> None:
    marker = closed.storage.read(f"{SECOND.bucket_path('click')}/{MARKER}")
    assert re.search(rb'"software": ?"hourmark [^"]+ blake2b=[0-9a-f]{32}"', marker)
    assert Manifest.decode(marker).encode() == marker
