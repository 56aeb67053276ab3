"""The judge reads a real NameNode and DataNode: redirects, listings and bytes are theirs, not those of a test's server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.judged.world import World, small_world

from hourmark.config import Config
from hourmark_infra.judge.check import judge
from hourmark_infra.judge.expectations import read_expectations
from hourmark_infra.judge.report import Kind, Report
from hourmark_infra.judge.snapshot import Snapshot, compare_snapshot, take_snapshot
from hourmark_infra.judge.webhdfs import WebHdfs

pytestmark = pytest.mark.stack


class Hdfs:
    """What the judge never does: writing. Below a root of the test's own."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.root = f"/judge-test-{uuid.uuid4().hex[:8]}"
        self._client = httpx.Client(timeout=60, trust_env=False)

    def put(self, path: str, content: bytes) -> None:
        """Write or replace a file."""
        asked = self._client.put(self._url(path), params=self._params("CREATE", overwrite="true"))
        assert asked.status_code == 307, asked.text
        self._client.put(asked.headers["Location"], content=content).raise_for_status()

    def delete(self, path: str) -> None:
        """Delete a file or folder."""
        self._client.delete(self._url(path), params=self._params("DELETE", recursive="true")).raise_for_status()

    def upload(self, folder: Path) -> None:
        """All files of a local root."""
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            self.put(str(file.relative_to(folder)), file.read_bytes())

    def close(self) -> None:
        """Leave nothing behind."""
        self.delete("")
        self._client.close()

    def _url(self, path: str) -> str:
        return f"{self.config.storage.webhdfs}/webhdfs/v1{self.root}/{path}".rstrip("/")

    def _params(self, operation: str, **more: str) -> dict[str, str]:
        return {"op": operation, "user.name": self.config.storage.user, **more}


@pytest.fixture
def hdfs(config: Config) -> Iterator[Hdfs]:
    made = Hdfs(config)
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return small_world(tmp_path)


def verdict(world: World, hdfs: Hdfs, *, snapshot: Snapshot | None = None) -> Report:
    """What the judge says of the real HDFS."""
    file = world.sources.parent / "expectations.json"
    storage = hdfs.config.storage
    file.write_text(json.dumps(world.expectations(webhdfs=storage.webhdfs, root=hdfs.root, user=storage.user)))
    client = WebHdfs(storage.webhdfs, storage.user)
    report = judge(read_expectations(file), client)
    if snapshot is not None:
        compare_snapshot(client, hdfs.root, snapshot, report)
    client.close()
    return report


def test_a_clean_tree_passes(world: World, hdfs: Hdfs) -> None:
    world.write()
    hdfs.upload(world.root)
    report = verdict(world, hdfs)
    assert report.content, report.as_text()
    assert report.of_type("lines").in_buckets == 3


def test_a_dropped_a_doubled_and_an_altered_event_are_each_objected_to(world: World, hdfs: Hdfs) -> None:
    world.plan("lines", 0).rows.pop()
    rows = world.plan("track-played", 0).rows
    rows.append(rows[0])
    world.plan("lines", 1).rows[0]["line"] += b"x"
    world.write()
    hdfs.upload(world.root)
    found = {kind: count for kind, count in verdict(world, hdfs).counts.items() if count}
    assert found == {Kind.LOST: 1, Kind.DOUBLED: 1, Kind.ALTERED: 1}


def test_a_bucket_changed_after_closing_is_objected_to(world: World, hdfs: Hdfs) -> None:
    world.write()
    hdfs.upload(world.root)
    client = WebHdfs(hdfs.config.storage.webhdfs, hdfs.config.storage.user)
    snapshot = take_snapshot(client, hdfs.root)
    client.close()
    folder = world.folder(world.plan("server-log", 2)).relative_to(world.root)
    hdfs.put(f"{folder}/part-00000.avro", b"added")
    report = verdict(world, hdfs, snapshot=snapshot)
    assert {kind: count for kind, count in report.counts.items() if count} == {Kind.CHANGED: 2, Kind.UNLISTED: 1}
    assert {finding.path for finding in report.findings if finding.kind is Kind.CHANGED} == {str(folder)}
