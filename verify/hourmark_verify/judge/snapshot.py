"""Snapshots of closed buckets, which show whether a bucket changed after it was closed.

A snapshot contains the HDFS file id, modification time and digest of each entry. It therefore also
reveals a file that was replaced by an identical one.
"""

from __future__ import annotations

from hourmark_verify.judge.buckets import find_changes, group_by_bucket, read_tree
from hourmark_verify.judge.report import FindingKind, JudgeReport
from hourmark_verify.judge.webhdfs import WebHdfsReader, hdfs_path

# Bucket path below the root → path within the bucket → [file id, modification time in ms, BLAKE2b].
Snapshot = dict[str, dict[str, list[object]]]


def take_snapshot(hdfs: WebHdfsReader, root: str) -> Snapshot:
    """Return the id, modification time and digest of each entry in all closed buckets.

    All files in the buckets are downloaded to compute their digests.

    Args:
        hdfs: WebHDFS client.
        root: Root of the buckets, as a path or as hdfs://host:port/path.

    Returns:
        Maps each bucket path to the entries of the bucket, by path within the bucket. An entry is a
        list of three values: HDFS file id, modification time in Unix milliseconds, and BLAKE2b-128
        digest in hexadecimal ("" for a folder). Empty if no bucket is closed.

    Raises:
        httpx.HTTPError: HDFS cannot be read.
    """
    base = hdfs_path(root)
    return {
        bucket: {
            name: [
                entry.id,
                entry.modified_ms,
                "" if entry.folder else _file_digest(hdfs, f"{base}/{bucket}/{name}"),
            ]
            for name, entry in entries.items()
        }
        for bucket, entries in group_by_bucket(read_tree(hdfs, base)).items()
    }


def compare_snapshot(
    hdfs: WebHdfsReader, root: str, snapshot: Snapshot, report: JudgeReport
) -> None:
    """Report every bucket that changed since a snapshot was taken.

    Buckets that were closed after the snapshot are ignored. An empty snapshot is reported as a
    finding.

    Args:
        hdfs: WebHDFS client.
        root: Root of the buckets, as a path or as hdfs://host:port/path.
        snapshot: Result of `take_snapshot`.
        report: Report that receives the findings.

    Raises:
        httpx.HTTPError: HDFS cannot be read.
    """
    if not snapshot:
        report.add(
            FindingKind.CHANGED, root, "the snapshot contains no bucket, so nothing was compared"
        )
    for path, fault in find_changes(snapshot, take_snapshot(hdfs, root)):
        report.add(FindingKind.CHANGED, path, fault)


def _file_digest(hdfs: WebHdfsReader, file: str) -> str:
    opened = hdfs.open(file)
    opened.content.close()
    return opened.blake2b
