"""The judge reads a real NameNode and DataNode: redirects, listings and bytes are theirs, not those
of a test's server.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.judged.world import World, small_world

from hourmark.config.groups import StorageSettings
from hourmark_etl.storage import Storage, open_storage
from hourmark_verify.judge.check import verify_delivery
from hourmark_verify.judge.expectations import read_expectations
from hourmark_verify.judge.report import FindingKind, JudgeReport
from hourmark_verify.judge.snapshot import Snapshot, compare_snapshot, take_snapshot
from hourmark_verify.judge.webhdfs import WebHdfsReader

pytestmark = pytest.mark.stack


@pytest.fixture
def hdfs(own_hdfs: StorageSettings) -> Storage:
    """What the judge never does: writing. Below a root of the test's own."""
    return open_storage(own_hdfs)


def upload(hdfs: Storage, folder: Path) -> None:
    """All files of a local root."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        hdfs.write_new(str(file.relative_to(folder)), file.read_bytes())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return small_world(tmp_path)


def verdict(
    world: World, own_hdfs: StorageSettings, *, snapshot: Snapshot | None = None
) -> JudgeReport:
    """What the judge says of the real HDFS."""
    file, root = world.sources.parent / "expectations.json", urlsplit(own_hdfs.root).path
    file.write_text(
        json.dumps(world.expectations(webhdfs=own_hdfs.webhdfs, root=root, user=own_hdfs.user))
    )
    with contextlib.closing(WebHdfsReader(own_hdfs.webhdfs, own_hdfs.user)) as client:
        report = verify_delivery(read_expectations(file), client)
        if snapshot is not None:
            compare_snapshot(client, root, snapshot, report)
    return report


def test_a_clean_tree_passes(world: World, hdfs: Storage, own_hdfs: StorageSettings) -> None:
    world.write()
    upload(hdfs, world.root)
    report = verdict(world, own_hdfs)
    assert report.passed, report.as_text()
    assert report.type_count("lines").in_buckets == 3


def test_a_dropped_a_doubled_and_an_altered_event_are_each_objected_to(
    world: World, hdfs: Storage, own_hdfs: StorageSettings
) -> None:
    world.plan("lines", 0).rows.pop()
    rows = world.plan("track-played", 0).rows
    rows.append(rows[0])
    world.plan("lines", 1).rows[0]["line"] += b"x"
    world.write()
    upload(hdfs, world.root)
    found = {kind: count for kind, count in verdict(world, own_hdfs).counts.items() if count}
    assert found == {FindingKind.LOST: 1, FindingKind.DOUBLED: 1, FindingKind.ALTERED: 1}


def test_a_bucket_changed_after_closing_is_objected_to(
    world: World, hdfs: Storage, own_hdfs: StorageSettings
) -> None:
    world.write()
    upload(hdfs, world.root)
    with contextlib.closing(WebHdfsReader(own_hdfs.webhdfs, own_hdfs.user)) as client:
        snapshot = take_snapshot(client, urlsplit(own_hdfs.root).path)
    folder = world.folder(world.plan("server-log", 2)).relative_to(world.root)
    hdfs.write_new(f"{folder}/part-00000.avro", b"added")
    report = verdict(world, own_hdfs, snapshot=snapshot)
    assert {kind: count for kind, count in report.counts.items() if count} == {
        FindingKind.CHANGED: 2,
        FindingKind.UNLISTED: 1,
    }
    assert {finding.path for finding in report.findings if finding.kind is FindingKind.CHANGED} == {
        str(folder)
    }
