"""What of a ledger an older version could not go on with, on SQLite and PostgreSQL: each is named
before anything goes back.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.bucket_chains import close_hours, expire_days, hours_of
from tests.support.buckets import TYPE
from tests.support.records import HOUR, PARQUET_FILE, manifest, tailer

from hourmark.config.groups import EtlSettings, StorageSettings
from hourmark.config.loading import Config
from hourmark.records.hours import Hour
from hourmark.rollback.obstacle import NothingToCheck
from hourmark.rollback.version import VERSIONS
from hourmark_etl.ledger import migrations, tables
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.maintenance.downgrading import downgrade_ledger
from hourmark_etl.operators.rollback import obstacles
from hourmark_etl.storage import LocalDisk

OLDER = VERSIONS["0.2.0"]


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Database]:
    with Database(ledger_url) as database:
        yield database


ROOT = "file:///no-buckets-are-here"


def config_of(url: str, root: str = ROOT) -> Config:
    return Config(etl=EtlSettings(ledger=url), storage=StorageSettings(root=root))


def of_ledger(url: str) -> list[str]:
    found = list(obstacles(config_of(url), OLDER))
    assert all(obstacle.to_do for obstacle in found)
    return [obstacle.seen for obstacle in found]


def test_a_newer_ledger_is_in_the_way_until_it_stepped_down(
    ledger_url: str, ledger: Database
) -> None:
    assert of_ledger(ledger_url) == [
        f"it has schema version {migrations.newest()}, but 0.2.0 supports at most 2"
    ]
    ledger.close()
    downgrade_ledger(ledger_url, 2)
    assert of_ledger(ledger_url) == []


def test_without_a_ledger_there_is_nothing_to_say(tmp_path: Path) -> None:
    with pytest.raises(NothingToCheck, match=f"no ledger exists at {tmp_path}/none.sqlite"):
        of_ledger(f"sqlite:///{tmp_path}/none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lost", {"app": 7}),
        ("unknown", {"app": 1}),
        ("unrepeatable", ["app"]),
        ("checked", 3),
        ("set_aside", 2),
        ("codec", "deflate"),
        ("parquet", [PARQUET_FILE]),
    ],
)
def test_a_marker_that_says_more_is_in_the_way_for_good(
    ledger_url: str, ledger: Database, field: str, value: object
) -> None:
    rows = [
        {
            "type": "click",
            "hour": hour,
            "grade": "proved",
            "manifest": text.with_own_digest().encode().decode(),
            "closed_at_ms": 1,
        }
        for hour, text in (
            (0, manifest(attempt=f'"{field}":')),
            (3600, manifest(HOUR, **{field: value})),
        )
    ]
    with ledger.transaction() as connection:
        connection.execute(tables.buckets.insert(), rows)
    found = of_ledger(ledger_url)[1:]
    assert found == [
        "1 closed buckets contain lost or unknown or unrepeatable or checked or set_aside or "
        "set_aside_records or left_out or "
        "lacks or codec or parquet, such as click 1970-01-01T01, which 0.2.0 rejects"
    ]


def put_frontier(ledger: Database, **changed: object) -> None:
    row = dict.fromkeys(("first_hour", "hour", "settled_next"), 7200) | dict.fromkeys(
        ("shard", "sources"), "[]"
    )
    with ledger.transaction() as connection:
        connection.execute(
            tables.frontiers.insert(),
            [row | {"type": "click", "state": "open", "digest": b"", "seal": None} | changed],
        )


@pytest.mark.parametrize(("to_ms", "count"), [(7_199_999, 0), (7_200_000, 1)])
def test_losses_that_may_concern_an_open_hour_are_in_the_way(
    ledger_url: str, ledger: Database, to_ms: int, count: int
) -> None:
    put_frontier(ledger)
    row = {
        "host_id": "h",
        "source": "app",
        "from_ms": 1,
        "to_ms": to_ms,
        "lost_bytes": 3,
        "unknown": 0,
    }
    with ledger.transaction() as connection:
        connection.execute(tables.host_losses.insert(), [row])
    found = of_ledger(ledger_url)[1:]
    assert len(found) == count and all(
        text.startswith("losses of the sources app may concern hours") for text in found
    )


def test_a_seal_that_says_more_is_in_the_way(ledger_url: str, ledger: Database) -> None:
    put_frontier(ledger, state="sealed", seal=json.dumps([{"lost": {}}, {"lost": {"app": 3}}]))
    assert of_ledger(ledger_url)[1:] == [
        "the manifest of a sealed hour of click will contain fields that 0.2.0 cannot write"
    ]


@pytest.mark.parametrize(("goodbye", "count"), [(True, 0), (False, 1)])
def test_a_source_of_senders_who_cannot_be_asked_again_is_in_the_way(
    ledger_url: str, ledger: Database, goodbye: bool, count: int
) -> None:
    with ledger.transaction() as connection:
        connection.execute(
            tables.reporters.insert(),
            [dataclasses.asdict(tailer(unrepeatable=True, goodbye=goodbye))],
        )
    assert len(of_ledger(ledger_url)[1:]) == count


@pytest.mark.parametrize("name", VERSIONS)
def test_tombstones_are_in_the_way(
    ledger_url: str, ledger: Database, tmp_path: Path, name: str
) -> None:
    assert ledger.identity()
    storage = LocalDisk(tmp_path / "root")
    config = config_of(ledger_url, f"file://{tmp_path}/root")
    close_hours(storage, hours_of("2026-11-01T00", "2026-11-01T01", "2026-11-03T00"))
    before = len(list(obstacles(config, VERSIONS[name])))
    expire_days(storage, TYPE, Hour.parse("2026-11-05T00").start_s * 1000, days=1)
    *_, found = obstacles(config, VERSIONS[name])
    assert len(list(obstacles(config, VERSIONS[name]))) == before + 1
    assert found.where.endswith(f"/{TYPE}/_removed/2026-11-01.json")
    assert f"1 days of buckets were removed by etl.retention_days, such as {TYPE}" in found.seen
