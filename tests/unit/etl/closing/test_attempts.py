"""Closing many buckets on HDFS is as fast as its requests are few; what the attempt did not write
whole is published by none of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.bucket_world import SCHEMAS, World, frontier, hour_at, some_ids
from tests.support.fake_hdfs import FakeHdfs

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.buckets.reader import read_manifest
from hourmark_etl.closing.bucket_manifest import build_manifest
from hourmark_etl.closing.publication.attempts import (
    prepare_bucket,
    publish_folder,
    publish_prepared,
)
from hourmark_etl.closing.publication.port import PreparedBucket
from hourmark_etl.model import Frontier
from hourmark_etl.storage import WebHdfs

PREPARED = ["CREATE", "CREATE data", "RENAME", "LISTSTATUS", "OPEN", "OPEN data"]
FOLDER = ["GETFILESTATUS", "RENAME", "GETFILESTATUS"]


@pytest.fixture
def world(hdfs: FakeHdfs, tmp_path: Path) -> World:
    storage = WebHdfs(
        filesystem="hdfs://namenode:8020",
        root="/root",
        namenodes=(hdfs.address,),
        user="me",
        replication=1,
        retry_pauses_s=(0.0,),
    )
    return World(tmp_path, storage)


def prepared(world: World, hdfs: FakeHdfs, hour: Hour) -> tuple[Frontier, Manifest]:
    """Of one file; what was asked for it is all that `hdfs` was asked."""
    f, listed = frontier(hour), world.stage(some_ids(3, hour))
    written = world.write(hour, listed)
    manifest = build_manifest(
        f,
        written,
        listed=listed,
        fingerprints=dict.fromkeys(SCHEMAS, "mark"),
        previous=None,
        ledger=("ledger", 1),
        attempt="one",
        now_ms=hour.end_ms,
    )
    hdfs.asked.clear()
    prepare_bucket(world.folders, f, written, manifest)
    return f, manifest


def test_a_bucket_takes_six_requests_and_its_rename_three(world: World, hdfs: FakeHdfs) -> None:
    first, second = hour_at(0), hour_at(1)
    bucket = prepared(world, hdfs, first)
    assert hdfs.asked == PREPARED
    publish_prepared(world.folders, *bucket)
    bucket = prepared(world, hdfs, second)
    hdfs.asked.clear()
    assert publish_prepared(world.folders, *bucket) == bucket[1]
    assert hdfs.asked == FOLDER
    assert read_manifest(world.storage, "click", second) == bucket[1]


def test_all_buckets_of_a_new_day_take_three_requests_together(
    world: World, hdfs: FakeHdfs
) -> None:
    world.folders.make_folder("click")
    buckets = [prepared(world, hdfs, hour_at(n)) for n in range(3)]
    hdfs.asked.clear()
    assert publish_folder(world.folders, [PreparedBucket(*of) for of in buckets])
    assert hdfs.asked == FOLDER
    for f, manifest in buckets:
        assert read_manifest(world.storage, "click", f.hour) == manifest


def test_a_day_that_has_a_folder_is_left_as_it_is(world: World, hdfs: FakeHdfs) -> None:
    publish_prepared(world.folders, *prepared(world, hdfs, hour_at(0)))
    bucket = prepared(world, hdfs, hour_at(1))
    assert not publish_folder(world.folders, [PreparedBucket(*bucket)])
    assert not world.storage.exists(hour_at(1).bucket_path("click"))
    assert publish_prepared(world.folders, *bucket) == bucket[1]


def test_a_marker_that_is_stored_in_part_is_not_published(world: World, hdfs: FakeHdfs) -> None:
    hour = hour_at(0)
    listed = world.stage(some_ids(3, hour))
    written = world.write(hour, listed)
    manifest = build_manifest(
        frontier(hour),
        written,
        listed=listed,
        fingerprints=dict.fromkeys(SCHEMAS, "mark"),
        previous=None,
        ledger=("ledger", 1),
        attempt="one",
        now_ms=hour.end_ms,
    )
    hdfs.stored_max = 100
    with pytest.raises(Finding, match="but the manifest lists"):
        prepare_bucket(world.folders, frontier(hour), written, manifest)


def test_a_container_that_is_stored_in_part_is_found_by_who_wrote_it(
    world: World, hdfs: FakeHdfs
) -> None:
    listed = world.stage(some_ids(3))
    hdfs.stored_max = 100
    written = world.write(hour_at(0), listed)
    assert "read back" in written.publish_error
