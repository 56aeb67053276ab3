"""Judges the buckets of a run with nothing of the ETL's but its storage, or without it: stock Avro
and JSON readers, and what a test delivered.

It keeps a digest of every file that it ever saw in a bucket, so that a bucket that changes later is
noticed.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import fastavro
from tests.support.delivery import Range

from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark_etl.storage import NotFound


class Named(Protocol):
    """An entry of a folder."""

    @property
    def name(self) -> str: ...


class BucketFiles(Protocol):
    """What the judge needs of a storage: the ETL's own, or another program's view of it."""

    def list(self, folder: str) -> Sequence[Named]:
        """Raises NotFound."""

    def read(self, path: str) -> bytes: ...


class BucketJudge:
    """`promised` what must arrive, `look` at what stands, as often as wanted; each finding is a
    sentence.
    """

    def __init__(self, storage: BucketFiles) -> None:
        self._storage = storage
        self._promised: dict[tuple[str, EventId], Hour] = {}
        self._digests: dict[str, str] = {}

    def promised(self, *ranges: Range, by: Hour) -> None:
        """These events must stand in the buckets up to `by`: their own hour's, or where they are
        late, the next to close.
        """
        for delivered in ranges:
            for event_type, event_id, _ in delivered.events:
                self._promised.setdefault((event_type, event_id), by)

    def poll(self, types: Sequence[str], hours: Sequence[Hour]) -> list[str]:
        """What is wrong with the buckets of these types and hours, all of which must stand; empty:
        nothing.
        """
        found: list[str] = []
        held: Counter[tuple[str, EventId]] = Counter()
        for event_type in types:
            for hour in hours:
                held.update(
                    (event_type, event_id) for event_id in self._bucket(event_type, hour, found)
                )
        found += [f"{t} {i} stands {n} times" for (t, i), n in held.items() if n > 1]
        due = [key for key, by in self._promised.items() if by <= max(hours) and key[0] in types]
        found += [f"{t} {i} was promised and is in no bucket" for t, i in due if not held[t, i]]
        return found

    def _bucket(self, event_type: str, hour: Hour, found: list[str]) -> list[EventId]:
        folder = hour.bucket_path(event_type)
        try:
            names = [entry.name for entry in self._storage.list(folder)]
        except NotFound:
            found.append(f"{folder} is missing")
            return []
        contents = {name: self._storage.read(f"{folder}/{name}") for name in names}
        for name, content in contents.items():
            digest = hashlib.blake2b(content).hexdigest()
            if self._digests.setdefault(f"{folder}/{name}", digest) != digest:
                found.append(f"{folder}/{name} has changed")
        gone = [
            path
            for path in self._digests
            if path.startswith(f"{folder}/") and path.rpartition("/")[2] not in names
        ]
        found += [f"{path} has vanished" for path in gone]
        manifest = json.loads(contents["_SUCCESS"])
        listed = {file["name"]: file["records"] for file in manifest["files"]}
        if set(names) != {*listed, "_SUCCESS"}:
            found.append(f"{folder} holds {names}, its manifest lists {sorted(listed)}")
        ids = {name: ids_in(contents[name]) for name in listed if name in contents}
        found += [
            f"{folder}/{n} holds {len(i)} events, not {listed[n]}"
            for n, i in ids.items()
            if len(i) != listed[n]
        ]
        return [event_id for each in ids.values() for event_id in each]


def ids_in(container: bytes) -> list[EventId]:
    """Event ids of an Avro container, in its order, read by a stock reader."""
    rows: Any = fastavro.reader(io.BytesIO(container))
    return [EventId(row["event_id"]) for row in rows]
