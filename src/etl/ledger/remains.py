"""What is left of a lost ledger on storage: markers of closed buckets, batch files beside staged files, files of surplus rows."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from etl.buckets import list_hours, read_manifest
from etl.ledger.batch_file import NAME, BatchFile, read_batch_file
from etl.ledger.history import ClosedHour, Key, Moves
from etl.ledger.rows import Position
from etl.storage import Entry, NotFound, Storage
from hourmark.hours import Hour
from hourmark.manifest import Manifest

STAGING_FOLDER: Final = "_staging"
SURPLUS_FOLDER: Final = "_surplus"
_SURPLUS_NAME: Final = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2})(?:-(\d{2}))?-\d{12}-[0-9a-f]{32}\.parquet")
_AT_ONCE: Final = 8  # requests to storage


@dataclasses.dataclass
class Batches:
    """All batch files, as far as offsets go. `unreadable`: why, in words that name the file."""

    moves: list[Moves] = dataclasses.field(default_factory=list)
    ledgers: dict[str, str] = dataclasses.field(default_factory=dict)  # folder → UUID
    partitions: dict[Key, Position] = dataclasses.field(default_factory=dict)
    unreadable: list[str] = dataclasses.field(default_factory=list)
    unfinished: int = 0  # folders without one: their batch never got as far as its commit

    def lowest(self) -> dict[Key, int]:
        """By partition, where the earliest of them begins."""
        found: dict[Key, int] = {}
        for moves in self.moves:
            for key, start in moves.starts.items():
                found[key] = min(start, found.get(key, start))
        return found

    def only_of(self, ledger: str) -> None:
        """Forget those of other ledgers."""
        self.moves = [m for m in self.moves if self.ledgers[m.folder] == ledger]


def read_batches(storage: Storage) -> Batches:
    """Look at every batch's folder."""
    folders = [f"{STAGING_FOLDER}/{entry.name}" for entry in _entries(storage, STAGING_FOLDER) if entry.is_folder]
    found = Batches()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for file in pool.map(lambda folder: _read(storage, folder), folders):
            if file is None:
                found.unfinished += 1
            elif isinstance(file, str):
                found.unreadable.append(file)
            else:
                _note(found, file)
    return found


def _read(storage: Storage, folder: str) -> BatchFile | str | None:
    try:
        return read_batch_file(storage, folder)
    except NotFound:
        return None
    except ValueError as error:
        return str(error)


def _note(found: Batches, file: BatchFile) -> None:
    batch = file.batch
    found.moves.append(Moves(batch.folder, file.order, _offsets(batch.starts), _offsets(batch.ends)))
    found.ledgers[batch.folder] = file.ledger
    found.partitions |= {(p.topic_id, p.partition): p for p in batch.ends}


def _offsets(positions: tuple[Position, ...]) -> dict[Key, int]:
    return {(p.topic_id, p.partition): p.next_offset for p in positions}


@dataclasses.dataclass
class Chain:
    """A type's closed buckets. `closed` holds only those that batches of `lowest` or later may stand in."""

    event_type: str
    lowest: Mapping[Key, int]
    hours: list[Hour] = dataclasses.field(default_factory=list)
    closed: list[ClosedHour] = dataclasses.field(default_factory=list)
    last: Manifest | None = None

    def add(self, hour: Hour, manifest: Manifest) -> None:
        """The next bucket in turn."""
        offsets = {(o.topic_id, o.partition): o.next for o in manifest.offsets}
        if any(offset > self.lowest.get(key, offset) for key, offset in offsets.items()):
            self.closed.append(ClosedHour(hour.start_s, offsets))
        self.hours.append(hour)
        self.last = manifest

    @property
    def settled_next(self) -> int:
        """The central audit offset below which promises of closed hours are kept."""
        return 0 if self.last is None else max(self.last.evidence.audit_next.values(), default=0)

    def marked(self) -> dict[Key, list[int]]:
        """By partition, offsets at which a freeze found the ledger, ascending."""
        found: dict[Key, set[int]] = {}
        for closed in self.closed:
            for key, offset in closed.next.items():
                found.setdefault(key, set()).add(offset)
        if self.last is not None:
            for o in self.last.offsets:
                found.setdefault((o.topic_id, o.partition), set()).add(o.next)
        return {key: sorted(offsets) for key, offsets in found.items()}


def read_chain(storage: Storage, event_type: str, bucket_seconds: int) -> Iterator[tuple[Hour, Manifest]]:
    """The type's markers, in turn. BadMarker or NotClosed where a bucket's folder holds none that can be read."""
    hours = list_hours(storage, event_type, bucket_seconds)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from zip(hours, pool.map(lambda hour: read_manifest(storage, event_type, hour), hours), strict=True)


def files_of(storage: Storage, folder: str) -> set[str]:
    """Paths of the staged files that still stand in a batch's folder."""
    return {f"{folder}/{entry.name}" for entry in storage.list(folder) if entry.name != NAME}


@dataclasses.dataclass(frozen=True, slots=True)
class SurplusLeft:
    """A file of surplus rows. A proof that failed may have left one too: then there are several of one hour."""

    event_type: str
    hour: Hour
    path: str
    rows: int


def read_surplus_files(storage: Storage, bucket_seconds: int) -> Iterator[SurplusLeft]:
    """All that stand in `_surplus/<type>/` (see `etl.closing.surplus`) and can be read: a damaged one settles nothing."""
    for folder in _entries(storage, SURPLUS_FOLDER):
        for entry in _entries(storage, f"{SURPLUS_FOLDER}/{folder.name}"):
            if match := _SURPLUS_NAME.fullmatch(entry.name):
                path = f"{SURPLUS_FOLDER}/{folder.name}/{entry.name}"
                label = match[1] + (f":{match[2]}" if match[2] else "")
                with (
                    storage.open(path) as file,
                    contextlib.suppress(pa.ArrowException, EOFError),
                ):
                    yield SurplusLeft(folder.name, Hour.parse(label, bucket_seconds), path, pq.read_metadata(file).num_rows)


def _entries(storage: Storage, folder: str) -> list[Entry]:
    try:
        return storage.list(folder)
    except NotFound:
        return []
