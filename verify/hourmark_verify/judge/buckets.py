"""Closed buckets in HDFS, and all other files and folders below the root of the buckets.

A closed bucket is a folder that contains a marker:

    <root>/<type>/date=YYYY-MM-DD/hour=HH[/minute=MM]/_SUCCESS

The markers of buckets that were removed by retention are in tombstones, one for each type and day:

    <root>/<type>/_removed/YYYY-MM-DD.json
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from hourmark_verify.judge.marker import Marker, has_valid_self_digest
from hourmark_verify.judge.webhdfs import HdfsEntry, WebHdfsReader

MARKER: Final = "_SUCCESS"
DEAD_LETTERS: Final = "dead-letters"
_PATH: Final = re.compile(r"([^/]+)/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)(?:/minute=(\d\d))?")
_TOMBSTONE: Final = re.compile(r"([^/]+)/_removed/(\d{4}-\d\d-\d\d)\.json")
# Folders that may be empty: those above a bucket that is not closed yet.
_ABOVE: Final = re.compile(r"[^/]+(?:/date=\d{4}-\d\d-\d\d(?:/hour=\d\d)?)?")

# HDFS entries by path below the root, without names at the top level that begin with `_` or `.`.
HdfsTree = Mapping[str, HdfsEntry]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredBucket:
    """A closed bucket in HDFS, which holds the events of one type and time interval.

    Attributes:
        type: Event type.
        path: Folder of the bucket, relative to the root of all buckets.
        start_ms: Start of the interval in Unix milliseconds, inclusive.
        end_ms: End of the interval in Unix milliseconds, exclusive.
        marker: Parsed marker (the `_SUCCESS` file, which describes the bucket).
        blake2b: BLAKE2b-128 digest of the `_SUCCESS` file, in hexadecimal.
    """

    type: str
    path: str
    start_ms: int
    end_ms: int
    marker: Marker
    blake2b: str

    @property
    def hour(self) -> str:
        """Label of the bucket's time interval, such as 2026-11-21T05.

        Buckets that are shorter than an hour have labels with minutes, such as 2026-11-21T05:07.
        """
        return self.label(self.start_ms)

    def label(self, time_ms: int) -> str:
        """Return the label of the interval that contains a time.

        The interval is as long as that of this bucket, but may be at another time.

        Args:
            time_ms: Time in Unix milliseconds.

        Returns:
            A label such as 2026-11-21T05 (hourly buckets) or 2026-11-21T05:07 (shorter buckets).
        """
        length_ms = self.end_ms - self.start_ms
        start = dt.datetime(1970, 1, 1) + dt.timedelta(
            milliseconds=time_ms // length_ms * length_ms
        )
        return f"{start:%Y-%m-%dT%H}" if length_ms == 3_600_000 else f"{start:%Y-%m-%dT%H:%M}"


def read_tree(hdfs: WebHdfsReader, root: str) -> dict[str, HdfsEntry]:
    """Return all HDFS entries below a root folder, by path relative to the root.

    Entries at the top level whose names begin with `_` or `.` are skipped.

    Args:
        hdfs: WebHDFS client.
        root: Path of the root folder in HDFS.

    Returns:
        The entries; an empty dictionary if the root does not exist.

    Raises:
        httpx.HTTPError: HDFS cannot be read.
    """
    tree: dict[str, HdfsEntry] = {}

    def walk(folder: str) -> None:
        for entry in hdfs.list(f"{root}/{folder}".rstrip("/")):
            if folder or entry.name[0] not in "._":
                path = f"{folder}/{entry.name}".lstrip("/")
                tree[path] = entry
                if entry.folder:
                    walk(path)

    walk("")
    return tree


def bucket_paths(tree: HdfsTree) -> set[str]:
    """Return the paths of all closed buckets, which are the folders with a `_SUCCESS` file.

    Args:
        tree: HDFS entries by path below the root, as returned by `read_tree`.
    """
    ending = f"/{MARKER}"
    return {
        path.removesuffix(ending)
        for path, entry in tree.items()
        if path.endswith(ending) and not entry.folder
    }


def group_by_bucket(tree: HdfsTree) -> dict[str, dict[str, HdfsEntry]]:
    """Group HDFS entries by the closed bucket that contains them.

    Args:
        tree: HDFS entries by path below the root, as returned by `read_tree`.

    Returns:
        Maps each bucket path to the entries of the bucket, by path within the bucket. The key ""
        stands for the bucket folder itself. Entries outside closed buckets are omitted.
    """
    found: dict[str, dict[str, HdfsEntry]] = {bucket: {} for bucket in bucket_paths(tree)}
    for path, entry in tree.items():
        bucket = next((folder for folder in _path_prefixes(path) if folder in found), None)
        if bucket is not None:
            found[bucket][path[len(bucket) + 1 :]] = entry
    return found


def _path_prefixes(path: str) -> Iterator[str]:
    return itertools.accumulate(path.split("/"), "{}/{}".format)


def find_changes(
    before: Mapping[str, Mapping[str, object]], now: Mapping[str, Mapping[str, object]]
) -> list[tuple[str, str]]:
    """Return the differences between two states of the same buckets.

    Args:
        before: Earlier state. It maps each bucket path to the entries of the bucket, by path within
            the bucket. An entry is any comparable value, such as an `HdfsEntry`.
        now: Later state, in the same form. Buckets that exist only here are ignored.

    Returns:
        (bucket path, description) for each entry that was added, changed or removed; an empty list
        if nothing changed.
    """
    found = []
    for path, old in before.items():
        new = now.get(path, {})
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                how = (
                    "was added"
                    if name not in old
                    else "has vanished"
                    if name not in new
                    else "was changed or replaced"
                )
                found.append((path, f"{name or 'the folder'} {how} after the bucket was closed"))
    return found


def read_bucket(hdfs: WebHdfsReader, root: str, path: str) -> StoredBucket:
    """Read the marker (the `_SUCCESS` file) of a bucket folder, and return the bucket.

    Args:
        hdfs: WebHDFS client.
        root: Path of the root folder in HDFS.
        path: Path of the bucket folder, relative to the root.

    Raises:
        ValueError: The path is not a bucket path, the marker is invalid, or the bucket length in
            the marker does not match the path.
        httpx.HTTPError: The marker cannot be read.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise ValueError(f"the marker is in {path}, which is not the path of a bucket")
    opened = hdfs.open(f"{root}/{path}/{MARKER}")
    with opened.content as content:
        written = content.read()
    return _parse_bucket(match, path, written, opened.blake2b)


def _parse_bucket(match: re.Match[str], path: str, written: bytes, blake2b: str) -> StoredBucket:
    event_type, date, hour, minute = match.groups()
    try:
        marker = Marker.model_validate_json(written)
    except ValidationError as error:
        what = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise ValueError(f"the marker is invalid: {what}") from error
    if not has_valid_self_digest(written, marker.software):
        raise ValueError("the marker is invalid: its content differs from its own digest")
    start_ms = (
        int(dt.datetime.fromisoformat(f"{date}T{hour}:{minute or '00'}:00+00:00").timestamp())
        * 1000
    )
    length_ms = marker.bucket_seconds * 1000
    if (minute is None) != (length_ms == 3_600_000) or start_ms % length_ms:
        raise ValueError(
            f"the bucket length of {marker.bucket_seconds} s in the marker does not match its path"
        )
    return StoredBucket(
        type=event_type,
        path=path,
        start_ms=start_ms,
        end_ms=start_ms + length_ms,
        marker=marker,
        blake2b=blake2b,
    )


def tombstone_paths(tree: HdfsTree) -> set[str]:
    """Return the paths of all tombstones of removed buckets.

    Args:
        tree: HDFS entries by path below the root, as returned by `read_tree`.
    """
    return {path for path, entry in tree.items() if not entry.folder and _TOMBSTONE.fullmatch(path)}


def read_tombstone(hdfs: WebHdfsReader, root: str, path: str) -> list[StoredBucket]:
    """Read the tombstone of a day, and return the removed buckets that it names.

    Args:
        hdfs: WebHDFS client.
        root: Path of the root folder in HDFS.
        path: Path of the tombstone, relative to the root.

    Returns:
        The buckets with their markers, sorted by time.

    Raises:
        ValueError: The tombstone or a marker in it is invalid, or they contradict each other.
        httpx.HTTPError: The tombstone cannot be read.
    """
    named = _TOMBSTONE.fullmatch(path)
    if named is None:
        raise ValueError(f"{path} is not the path of a tombstone")
    with hdfs.open(f"{root}/{path}").content as content:
        written = content.read()
    try:
        tombstone = json.loads(written)
        if not has_valid_self_digest(written, tombstone["software"]):
            raise ValueError("its content differs from its own digest")
        if (tombstone["format"], tombstone["type"], tombstone["date"]) != (1, *named.groups()):
            raise ValueError("its format, type or date is not that of its path")
        return [
            _removed_bucket(tombstone["type"], tombstone["date"], entry)
            for entry in tombstone["buckets"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the tombstone is invalid: {error!r}") from error


def _removed_bucket(event_type: str, date: str, entry: Mapping[str, Any]) -> StoredBucket:
    day, _, clock = str(entry["hour"]).partition("T")
    hour, _, minute = clock.partition(":")
    path = f"{event_type}/date={day}/hour={hour}" + (f"/minute={minute}" if minute else "")
    match = _PATH.fullmatch(path)
    if match is None or day != date:
        raise ValueError(f"it names the hour {entry['hour']}")
    written = entry["marker"].encode()
    digest = hashlib.blake2b(written, digest_size=16).hexdigest()
    bucket = _parse_bucket(match, path, written, digest)
    marker = bucket.marker
    size = sum(file.bytes for file in marker.files) + sum(file.bytes for file in marker.parquet)
    said = (entry["blake2b"], entry["grade"], entry["events"], entry["late"], entry["bytes"])
    if said != (digest, marker.grade, marker.events, marker.late, size):
        raise ValueError(f"its entry of {entry['hour']} differs from the marker")
    if (marker.type, marker.hour) != (event_type, entry["hour"]):
        raise ValueError(f"it contains the marker of {marker.type} {marker.hour}")
    return bucket


def closed_buckets(hdfs: WebHdfsReader, root: str) -> Iterator[StoredBucket]:
    """Return an iterator over all closed buckets, sorted by type and time.

    Args:
        hdfs: WebHDFS client.
        root: Path of the root folder in HDFS.

    Raises:
        ValueError: During iteration, if the marker (`_SUCCESS` file) of a bucket is invalid.
        httpx.HTTPError: HDFS cannot be read.
    """
    return (read_bucket(hdfs, root, path) for path in sorted(bucket_paths(read_tree(hdfs, root))))


def find_unlisted(tree: HdfsTree, buckets: Mapping[str, StoredBucket]) -> Iterator[str]:
    """Yield the paths of files and folders that do not belong to any closed bucket.

    A bucket consists of its marker (the `_SUCCESS` file) and all files that the marker lists. Empty
    folders on the path of a future bucket, and tombstones of removed buckets, are not reported.

    Args:
        tree: HDFS entries by path below the root, as returned by `read_tree`.
        buckets: Closed buckets by path below the root.
    """
    listed = {
        f"{path}/{name}"
        for path, b in buckets.items()
        for name in (
            MARKER,
            *(f.name for f in b.marker.files),
            *(f.name for f in b.marker.parquet),
        )
    }
    tombstones = tombstone_paths(tree)
    listed |= tombstones
    above = {folder for path in (*buckets, *tombstones) for folder in _path_prefixes(path)}
    above |= {path.rpartition("/")[0] for path in listed}
    above |= {
        path
        for path in tree.keys() - {path.rpartition("/")[0] for path in tree}
        if _ABOVE.fullmatch(path)
    }
    return (path for path, entry in tree.items() if path not in (above if entry.folder else listed))
