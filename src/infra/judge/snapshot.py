"""Whether a closed bucket ever changed: all that is in closed buckets, taken at one time, compared at another.

A file that was replaced by its equal has another file id or modification time.
"""

from __future__ import annotations

from infra.judge.buckets import bucket_of, bucket_paths, read_tree
from infra.judge.report import Kind, Report
from infra.judge.webhdfs import WebHdfs, hdfs_path

Snapshot = dict[str, dict[str, list[object]]]  # bucket's path below the root → path in it → file id, time, BLAKE2b-128


def take_snapshot(hdfs: WebHdfs, root: str) -> Snapshot:
    """All closed buckets as they are."""
    base = hdfs_path(root)
    tree = read_tree(hdfs, base)
    snapshot: Snapshot = {bucket: {} for bucket in bucket_paths(tree)}
    for path, entry in tree.items():
        if (bucket := bucket_of(path, snapshot)) is not None:
            digest = "" if entry.folder else _digest(hdfs, f"{base}/{path}")
            snapshot[bucket][path[len(bucket) + 1 :]] = [entry.id, entry.modified_ms, digest]
    return snapshot


def compare_snapshot(hdfs: WebHdfs, root: str, snapshot: Snapshot, report: Report) -> None:
    """Object to each bucket of the snapshot that is not as it was; buckets closed since are none of its business."""
    if not snapshot:
        report.add(Kind.CHANGED, root, None, "the snapshot holds no bucket, so nothing was compared")
    for path, fault in changes(snapshot, take_snapshot(hdfs, root)):
        report.add(Kind.CHANGED, path, None, fault)


def changes(before: Snapshot, now: Snapshot) -> list[tuple[str, str]]:
    """Bucket and change, for every bucket of `before`."""
    found = []
    for path, old in before.items():
        new = now.get(path, {})
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                how = "was added" if name not in old else "has vanished" if name not in new else "was changed or replaced"
                found.append((path, f"{name or 'the folder'} {how} after the bucket was closed"))
    return found


def _digest(hdfs: WebHdfs, file: str) -> str:
    opened = hdfs.open(file)
    opened.content.close()
    return opened.blake2b
