"""Closed buckets as HDFS has them: folders with a marker, and whatever else lies below the root.

<root>/<type>/date=YYYY-MM-DD/hour=HH[/minute=MM]/_SUCCESS
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import ValidationError

from hourmark_verify.judge.marker import Marker, vouches_for_itself
from hourmark_verify.judge.webhdfs import Entry, WebHdfs

MARKER: Final = "_SUCCESS"
DEAD_LETTERS: Final = "dead-letters"
_PATH: Final = re.compile(r"([^/]+)/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)(?:/minute=(\d\d))?")
_ABOVE: Final = re.compile(
    r"[^/]+(?:/date=\d{4}-\d\d-\d\d(?:/hour=\d\d)?)?"
)  # what may be there, empty, before its first bucket

Tree = Mapping[
    str, Entry
    # by path below the root; what begins with `_` or `.` at the root is work in progress, and left
    # out
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A closed bucket: its folder relative to the root, the span of its event times, its marker and
    that one's BLAKE2b-128.
    """

    type: str
    path: str
    start_ms: int
    end_ms: int
    marker: Marker
    blake2b: str

    @property
    def hour(self) -> str:
        """As manifests spell it: 2026-11-21T05, or 2026-11-21T05:07."""
        return self.label(self.start_ms)

    def label(self, time_ms: int) -> str:
        """The name of the hour of this length that holds a time."""
        length_ms = self.end_ms - self.start_ms
        start = dt.datetime(1970, 1, 1) + dt.timedelta(
            milliseconds=time_ms // length_ms * length_ms
        )
        return f"{start:%Y-%m-%dT%H}" if length_ms == 3_600_000 else f"{start:%Y-%m-%dT%H:%M}"


def read_tree(hdfs: WebHdfs, root: str) -> dict[str, Entry]:
    """Everything below the root, as listings show it now."""
    tree: dict[str, Entry] = {}

    def walk(folder: str) -> None:
        for entry in hdfs.list(f"{root}/{folder}".rstrip("/")):
            if folder or entry.name[0] not in "._":
                path = f"{folder}/{entry.name}".lstrip("/")
                tree[path] = entry
                if entry.folder:
                    walk(path)

    walk("")
    return tree


def bucket_paths(tree: Tree) -> set[str]:
    """The folders that have a marker."""
    ending = f"/{MARKER}"
    return {
        path.removesuffix(ending)
        for path, entry in tree.items()
        if path.endswith(ending) and not entry.folder
    }


def by_bucket(tree: Tree) -> dict[str, dict[str, Entry]]:
    """What lies in each folder that has a marker, by its path in there; the folder itself is ""."""
    found: dict[str, dict[str, Entry]] = {bucket: {} for bucket in bucket_paths(tree)}
    for path, entry in tree.items():
        bucket = next((folder for folder in _prefixes(path) if folder in found), None)
        if bucket is not None:
            found[bucket][path[len(bucket) + 1 :]] = entry
    return found


def _prefixes(path: str) -> Iterator[str]:
    """The path's folders from the first on, and the path itself."""
    return itertools.accumulate(path.split("/"), "{}/{}".format)


def changes(
    before: Mapping[str, Mapping[str, object]], now: Mapping[str, Mapping[str, object]]
) -> list[tuple[str, str]]:
    """Bucket and change, for every bucket of `before`."""
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


def read_bucket(hdfs: WebHdfs, root: str, path: str) -> Bucket:
    """The bucket of this folder; ValueError says why it is none."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise ValueError("a marker lies where no bucket can be")
    event_type, date, hour, minute = match.groups()
    opened = hdfs.open(f"{root}/{path}/{MARKER}")
    try:
        with opened.content as content:
            written = content.read()
            marker = Marker.model_validate_json(written)
    except ValidationError as error:
        what = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise ValueError(f"the marker is none: {what}") from error
    if not vouches_for_itself(written, marker.software):
        raise ValueError("the marker is none: its digest of itself is another")
    start_ms = (
        int(dt.datetime.fromisoformat(f"{date}T{hour}:{minute or '00'}:00+00:00").timestamp())
        * 1000
    )
    length_ms = marker.bucket_seconds * 1000
    if (minute is None) != (length_ms == 3_600_000) or start_ms % length_ms:
        raise ValueError(f"the marker says {marker.bucket_seconds} s, which its path does not fit")
    return Bucket(
        type=event_type,
        path=path,
        start_ms=start_ms,
        end_ms=start_ms + length_ms,
        marker=marker,
        blake2b=opened.blake2b,
    )


def closed_buckets(hdfs: WebHdfs, root: str) -> Iterator[Bucket]:
    """All closed buckets, by type and time; ValueError where a marker is none."""
    return (read_bucket(hdfs, root, path) for path in sorted(bucket_paths(read_tree(hdfs, root))))


def unlisted(tree: Tree, buckets: Mapping[str, Bucket]) -> Iterator[str]:
    """What no marker speaks of: files, folders, attempts."""
    listed = {
        f"{path}/{name}"
        for path, b in buckets.items()
        for name in (MARKER, *(f.name for f in b.marker.files))
    }
    above = {folder for path in buckets for folder in _prefixes(path)}
    above |= {
        path
        for path in tree.keys() - {path.rpartition("/")[0] for path in tree}
        if _ABOVE.fullmatch(path)
    }
    return (path for path, entry in tree.items() if path not in (above if entry.folder else listed))
