"""Tables of pandas, polars and DuckDB have the values of pyarrow; buckets on WebHDFS are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from tests.support.fake_hdfs import FakeHdfs, refusing
from tests.support.readable_buckets import TYPE, File, ReadableSite, row

from hourmark_reading import Events, ReadingError, open_buckets

H5, H6, H7 = "2026-11-21T05", "2026-11-21T06", "2026-11-21T07"
BIG = 2**62 + 1  # which a double cannot hold
FIELDS: Final[Sequence[Mapping[str, Any]]] = [
    {"name": "n", "type": ["null", "long"]},
    {"name": "ok", "type": ["null", "boolean"]},
    {"name": "tags", "type": {"type": "map", "values": "string"}},
]


@pytest.fixture
def site(tmp_path: Path) -> ReadableSite:
    site = ReadableSite(tmp_path)
    rows = [
        row(H5, 0, n=BIG, ok=True, tags={"a": "b"}),
        row(H5, 1, n=None, ok=None, tags={}),
    ]
    site.close(H5, {"part-00000.avro": File(1, FIELDS, rows)})
    site.close(H6, {})
    return site


@pytest.fixture
def events(site: ReadableSite) -> Events:
    return open_buckets(site.url).read(TYPE, H5, H6, columns=["n", "ok", "tags", "event_time"])


def test_pandas_has_exact_integers_beside_missing_values(events: Events) -> None:
    frame = events.to_pandas()
    assert frame["n"][0] == BIG
    assert frame["n"].isna().tolist() == [False, True]
    assert [str(t) for t in frame.dtypes[["n", "ok", "event_time"]]] == [
        "Int64",
        "boolean",
        "datetime64[us, UTC]",
    ]


def test_polars_has_the_same_values(events: Events) -> None:
    frame = events.to_polars()
    assert frame["n"].to_list() == [BIG, None]
    assert frame["ok"].to_list() == [True, None]
    assert frame["tags"].to_list() == [{"a": "b"}, {}]


def test_a_relation_of_duckdb_is_read_repeatedly(events: Events) -> None:
    with duckdb.connect() as connection:
        relation = events.to_duckdb(connection)
        for _ in range(2):
            assert relation.project("n, ok, tags").fetchall() == [
                (BIG, True, {"a": "b"}),
                (None, None, {}),
            ]


def test_tables_without_events_have_the_columns(site: ReadableSite) -> None:
    nothing = open_buckets(site.url).read(TYPE, H6, H7, columns=["n"], on_missing="skip")
    assert nothing.to_pandas().columns.tolist() == ["n"]
    assert nothing.to_polars().columns == ["n"]
    with duckdb.connect() as connection:
        assert nothing.to_duckdb(connection).columns == ["n"]


@pytest.fixture
def hdfs(site: ReadableSite, tmp_path: Path) -> Iterator[FakeHdfs]:
    """The buckets of the site on a NameNode and DataNode."""
    with FakeHdfs() as server:
        for path in tmp_path.rglob("*"):
            name = f"/root/{path.relative_to(tmp_path)}"
            server.names[name] = path.read_bytes() if path.is_file() else None
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url(hdfs: FakeHdfs) -> str:
    return f"{hdfs.address.replace('http', 'webhdfs', 1)}/root"


def test_buckets_on_webhdfs_are_read(site: ReadableSite, hdfs: FakeHdfs) -> None:
    buckets = open_buckets(url(hdfs), user="reader")
    assert buckets.types() == [TYPE]
    found = buckets.read(TYPE, H5, H7).to_table()
    assert found == open_buckets(site.url).read(TYPE, H5, H7).to_table()


@pytest.mark.parametrize("requests_before", range(3))
def test_an_error_of_a_datanode_is_never_taken_for_an_end(
    hdfs: FakeHdfs, requests_before: int
) -> None:
    # fsspec returns the body of an error of a DataNode as content.
    buckets = open_buckets(url(hdfs), user="reader")
    if requests_before > 1:
        buckets.hours(TYPE, H5, H7)
    events = buckets.read(TYPE, H5, H7) if requests_before else None
    hdfs.troubles.append(("OPEN data", refusing(403, "IOException")))
    with pytest.raises((ReadingError, OSError)):
        (events or buckets.read(TYPE, H5, H7)).to_table()
