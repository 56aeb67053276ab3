"""The proof's tasks on Spark: what travels pickles, ranges meet in tasks, and errors arrive as they
are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.proving import FIRST, TYPE, Range, Site
from tests.support.rules import put_rules

from hourmark.config.groups import EtlSettings, StorageSettings
from hourmark.config.loading import Config
from hourmark.rules.event_types import EventType, Source
from hourmark_etl.closing.runner import SparkRunner
from hourmark_etl.errors import Unreadable
from hourmark_etl.ledger.database import Database
from hourmark_etl.storage import open_storage
from hourmark_infra.checks.class_archive import SUBMIT_ARGUMENTS, archive_file

# pyspark leaves the sockets by which results came to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
RANGES = [Range(n, tuple((0, 10 * n + k) for k in range(5))) for n in range(20)]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield session
    session.stop()


@pytest.mark.slow
def test_drivers_of_tests_use_the_class_archive(spark: SparkSession) -> None:
    archive = archive_file()
    if archive is None or str(archive) not in os.environ.get(SUBMIT_ARGUMENTS, ""):
        pytest.skip("only `hourmark test` names an archive")
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert str(archive) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranges_here_max", [1_000_000, 5], ids=["judged by the driver", "judged in tasks"]
)
def test_a_join_on_spark_finds_what_is_missing_and_what_is_unaudited(
    spark: SparkSession, tmp_path: Path, ranges_here_max: int
) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.sqlite"
    put_rules(
        Config(etl=EtlSettings(ledger=ledger)),
        [EventType(name=TYPE, fields=[{"name": "n", "type": "long"}])],
        [Source(name="app", types=[TYPE])],
        FIRST,
    )
    database = Database(ledger)
    at = Site(
        open_storage(StorageSettings(root=f"file://{tmp_path}/root")),
        database,
        ranges_here_max,
        64,
        SparkRunner(spark),
    )
    for n, sent in enumerate(RANGES):
        at.send(sent, rows=range(4) if n == 7 else None, audit=n != 3)
        at.send(sent, rows=[0], audit=False)  # a duplicate of each
    at.stage()
    found, expected = at.close()
    assert (found.method, found.audit_records, found.promised) == ("join", 19, 95)
    assert (
        found.unaudited == expected.unaudited == 5
        and found.unaudited_file is not None
        and found.unaudited_file.rows == 5
    )
    assert [
        RANGES[7].range_id.hex() in text and "5 events" in text and "4 found" in text
        for text in found.findings
    ] == [True]
    at.send(RANGES[1], audit=False)
    at.stage()
    late, _ = at.close()
    ((range_id, what),) = (
        late.second_readings
    )  # the closed bucket, as this site makes it, holds none of them
    assert (range_id, late.unknown, late.unaudited) == (
        RANGES[1].range_id,
        (),
        0,
    ) and "5 late events of 2027-01-15T08" in what
    at.send(RANGES[2], audit=False)
    at.stage()
    at.storage.delete("_staging/2")
    with pytest.raises(Unreadable, match="_staging/2/events-"):
        at.close()
    database.close()
