"""The programs for Spark and Hive in the pages about reading print what is shown, and Spark's rows
are those of pyarrow.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from tests.support.access_buckets import write_access_buckets
from tests.support.avro_types import array, logical, map_of
from tests.support.documents import code_blocks
from tests.support.readable_buckets import TYPE, File, ReadableSite, row
from tests.unit.docs.test_read_buckets_pages import LIBRARY, WITHOUT, programs

from hourmark_reading import open_buckets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # pyspark leaves the sockets by which results came to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),
]

H5, H6 = "2026-11-30T05", "2026-11-30T06"
FIELDS: Final[Sequence[Mapping[str, Any]]] = [
    {"name": "n", "type": ["null", "long"]},
    {"name": "counts", "type": map_of(["null", "long"])},
    {"name": "price", "type": logical("bytes", "decimal", precision=12, scale=2)},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "keys", "type": array(["null", {"type": "fixed", "name": "Key", "size": 2}])},
    {"name": "day", "type": logical("int", "date")},
    {"name": "local", "type": logical("long", "local-timestamp-micros")},
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("hive")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={folder}/metastore;create=true"
        ),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    builder = SparkSession.builder.master("local[2]").config(map=settings)
    session = builder.enableHiveSupport().getOrCreate()
    yield session
    session.stop()


def test_rows_of_spark_are_those_of_pyarrow(spark: SparkSession, tmp_path: Path) -> None:
    site = ReadableSite(tmp_path)
    events = [
        row(
            H5,
            number,
            n=2**62 + 1 if number else None,
            counts={"a": 1, "b": None},
            price=decimal.Decimal("1.25"),
            kind="B",
            keys=[b"ab", None],
            day=dt.date(2026, 1, 1),
            local=dt.datetime(2026, 1, 1, 5),
        )
        for number in range(3)
    ]
    site.close(H5, {"part-00000.avro": File(1, FIELDS, events[:2])})
    site.close(H6, {"late-00000.avro": File(1, FIELDS, events[2:])})
    names = [*(str(field["name"]) for field in FIELDS), "event_id", "event_time", "file"]
    found = open_buckets(site.url).read(TYPE, H5, H6, columns=names)
    frame = found.to_spark(spark)
    rows = [r.asDict(recursive=True) for r in frame.orderBy("event_id").collect()]
    expected = found.to_table().sort_by("event_id").to_pylist()
    assert frame.columns == names
    for of_spark, of_arrow in zip(rows, expected, strict=True):
        of_arrow["counts"] = dict(of_arrow["counts"])
        of_arrow["event_time"] = of_arrow["event_time"].astimezone().replace(tzinfo=None)
        assert of_spark == of_arrow
    nothing = open_buckets(site.url).read(TYPE, H6, "2026-11-30T07", columns=names)
    assert nothing.to_spark(spark).columns == names
    assert nothing.to_spark(spark).count() == 0


def test_the_program_for_spark_prints_what_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    site = write_access_buckets(tmp_path)
    events = open_buckets(site.url).read(TYPE, H5, "2026-11-30T07")
    [(code, output)] = [pair for pair in programs(LIBRARY) if "SparkSession" in pair[0]]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {"events": events, "spark": spark})
    assert printed.getvalue().strip() == output.strip()


@pytest.mark.long
def test_the_statements_for_hive_give_the_events_of_a_bucket(
    spark: SparkSession, tmp_path: Path
) -> None:
    site = write_access_buckets(tmp_path)
    schema = tmp_path / "access.avsc"
    schema.write_text(open_buckets(site.url).read(TYPE, H5, H6).avro_schema)
    assert json.loads(schema.read_text())["name"] == "access"
    *statements, query = code_blocks(WITHOUT, "sql")
    for statement in [*statements, statements[-1]]:
        given = re.sub(r"'/hourmark/", f"'{site.url}/", statement)
        spark.sql(given.replace("/schemas/access.avsc", schema.as_uri()))
    assert [tuple(r) for r in spark.sql(query).collect()] == [(200, 2), (404, 1)]
