"""Whether a closed bucket ever changed: all that is in closed buckets, taken at one time, compared
at another.

A file that was replaced by its equal has another file id or modification time.
"""

from __future__ import annotations

from hourmark_verify.judge.buckets import find_changes, group_by_bucket, read_tree
from hourmark_verify.judge.report import FindingKind, JudgeReport
from hourmark_verify.judge.webhdfs import WebHdfsReader, hdfs_path

Snapshot = dict[
    str, dict[str, list[object]]
]  # bucket's path below the root → path in it → file id, time, BLAKE2b-128


def take_snapshot(hdfs: WebHdfsReader, root: str) -> Snapshot:
    """Return the ids, modification times and digests of everything in all closed buckets.

    Args:
        hdfs: WebHDFS client.
        root: root of the buckets, as a path or as hdfs://host:port/path.

    Raises:
        httpx.HTTPError: if HDFS cannot be read.
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

    Buckets that were closed later are ignored. An empty snapshot is reported as a finding.

    Args:
        hdfs: WebHDFS client.
        root: root of the buckets, as a path or as hdfs://host:port/path.
        snapshot: result of `take_snapshot`.
        report: report that receives the findings.

    Raises:
        httpx.HTTPError: if HDFS cannot be read.
    """
    if not snapshot:
        report.add(
            FindingKind.CHANGED, root, "the snapshot holds no bucket, so nothing was compared"
        )
    for path, fault in find_changes(snapshot, take_snapshot(hdfs, root)):
        report.add(FindingKind.CHANGED, path, fault)


def _file_digest(hdfs: WebHdfsReader, file: str) -> str:
    opened = hdfs.open(file)
    opened.content.close()
    return opened.blake2b
