"""Whether a closed bucket ever changed: digests of all files of all closed buckets, taken at one time, compared at another."""

from __future__ import annotations

from collections.abc import Iterator

from infra.judge.buckets import closed_buckets
from infra.judge.report import Finding, Kind, Report
from infra.judge.webhdfs import WebHdfs, hdfs_path

Snapshot = dict[str, dict[str, str]]  # bucket's path below the root → file name → BLAKE2b-128


def take_snapshot(hdfs: WebHdfs, root: str) -> Snapshot:
    """All closed buckets as they are."""
    base = hdfs_path(root)
    return {bucket.path: _digests(hdfs, f"{base}/{bucket.path}") for bucket in closed_buckets(hdfs, base)}


def compare_snapshot(hdfs: WebHdfs, root: str, snapshot: Snapshot, report: Report) -> None:
    """Object to each bucket of the snapshot that is not as it was; buckets closed since are none of its business."""
    base = hdfs_path(root)
    for path, before in snapshot.items():
        for finding in _changes(path, before, _digests(hdfs, f"{base}/{path}")):
            report.add(finding.kind, finding.path, finding.position, finding.detail)


def _changes(path: str, before: dict[str, str], now: dict[str, str]) -> Iterator[Finding]:
    for name in sorted({*before, *now}):
        if name not in now:
            yield Finding(Kind.CHANGED, path, None, f"{name} has vanished since the bucket was closed")
        elif name not in before:
            yield Finding(Kind.CHANGED, path, None, f"{name} was added after the bucket was closed")
        elif now[name] != before[name]:
            yield Finding(Kind.CHANGED, path, None, f"{name} has other bytes than when the bucket was closed")


def _digests(hdfs: WebHdfs, folder: str) -> dict[str, str]:
    digests = {}
    for entry in hdfs.list(folder):
        if not entry.folder:
            opened = hdfs.open(f"{folder}/{entry.name}")
            opened.content.close()
            digests[entry.name] = opened.blake2b
    return digests
