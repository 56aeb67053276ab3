"""Verification of closed buckets: reads every byte, decodes every event, reports each difference to
the manifest.

A bucket alone cannot show that no promised event is missing; the manifest's books and the ledger
show that.

Memory of a check: 16 bytes per event of the bucket, three times that while ids are sorted, and
about 100 bytes per late event of all buckets that are checked together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Final, cast

import fastavro
import numpy as np

from hourmark.avro.framing import fingerprint
from hourmark.config.groups import AvroCodec
from hourmark.records.event_id import SIZE as ID_SIZE
from hourmark.records.event_id import EventId
from hourmark.records.hours import Hour
from hourmark.records.manifest import (
    MARKER,
    BucketFile,
    Manifest,
    ParquetFile,
    PreviousMarker,
)
from hourmark_etl.arrow import Int64s, UInt64s, hour_starts_s
from hourmark_etl.buckets.digesting_reader import DigestingReader
from hourmark_etl.buckets.parquet_comparison import find_parquet_differences
from hourmark_etl.buckets.reader import (
    BadMarker,
    BucketRemoved,
    DamagedBucketFile,
    NotClosed,
    list_bucket_files,
    read_events,
    read_manifest,
    read_marker,
)
from hourmark_etl.storage import Storage, StorageError

ON_TIME_PREFIX: Final = "part-"
LATE_PREFIX: Final = "late-"

_EXAMPLES_MAX: Final = 3  # ids named in one finding


class BucketFault(enum.StrEnum):
    """Type of fault that the verification of closed buckets can detect.

    Commands print the value of a member, such as `missing-file`.

    Attributes:
        MISSING_BUCKET: There is no bucket for an hour between two closed buckets.
        UNFINISHED_REMOVAL: The bucket was removed by retention, but its folder still exists.
        MISSING_MARKER: The folder of the bucket has no marker (`_SUCCESS` file).
        BAD_MARKER: The marker is not a valid manifest of this bucket.
        CHAIN: The marker does not refer to the marker of the previous bucket.
        MISSING_FILE: A file that the manifest lists does not exist.
        EXTRA_FILE: The folder contains a file that the manifest does not list.
        SIZE: A file does not have the size that the manifest states.
        DIGEST: The content of a file does not match its digest.
        COUNT: The number of events differs from the manifest.
        UNREADABLE: A file cannot be read or decoded.
        SCHEMA: The schema of a file differs from the manifest.
        CODEC: A file does not have the codec that the manifest states, or the manifest states a
            codec although the bucket has no files.
        DUPLICATE: An event id appears more than once.
        ID_SUM: The sum of the event ids differs from the manifest.
        HOUR: The time of an event does not belong to the bucket.
        LATE: The numbers of late events differ from the manifest.
        PARQUET: The events of a Parquet file differ from those of its Avro file.
    """

    MISSING_BUCKET = (
        "missing-bucket"  # hours close in order, even empty ones, so there must be no gap
    )
    UNFINISHED_REMOVAL = "unfinished-removal"
    MISSING_MARKER = "missing-marker"
    BAD_MARKER = "bad-marker"
    CHAIN = "broken-chain"  # link between a marker and the previous one
    MISSING_FILE = "missing-file"
    EXTRA_FILE = "extra-file"
    SIZE = "wrong-size"
    DIGEST = "wrong-digest"
    COUNT = "wrong-count"
    UNREADABLE = "unreadable"
    SCHEMA = "wrong-schema"
    CODEC = "wrong-codec"
    DUPLICATE = "duplicate-event"
    ID_SUM = "wrong-id-sum"
    HOUR = "wrong-hour"
    LATE = "wrong-late-counts"
    PARQUET = "wrong-parquet"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketFinding:
    """Fault that the verification has found in a closed bucket.

    Attributes:
        type: Event type of the bucket.
        hour: Hour of the bucket, as text.
        kind: Type of the fault.
        detail: Human-readable description.
        file: Name of the affected file; None if the fault does not concern a single file.
    """

    type: str
    hour: str
    kind: BucketFault
    detail: str
    file: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.type} {self.hour} {self.kind}: "
            f"{f'{self.file}: ' if self.file else ''}{self.detail}"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketReport:
    """Result of verifying one closed bucket.

    Attributes:
        type: Event type of the bucket.
        hour: Hour of the bucket.
        manifest: The bucket's manifest; None if it is missing or invalid.
        findings: All faults; empty if the bucket is intact.
        events: Number of events read.
        size: Number of bytes read.
        late_ids: Concatenated 16-byte ids of the bucket's late events (events of earlier hours).
        is_removed: Whether the bucket was removed by retention. Its manifest is from the tombstone.
    """

    type: str
    hour: Hour
    manifest: Manifest | None
    findings: tuple[BucketFinding, ...]
    events: int = 0
    size: int = 0
    late_ids: bytes = dataclasses.field(default=b"", repr=False)  # concatenated
    is_removed: bool = False


def find_gaps(
    event_type: str, hours: Sequence[Hour], reports: Sequence[BucketReport] = ()
) -> list[BucketFinding]:
    """Report the hours that are missing between the buckets of an event type.

    Every hour between two buckets must have a bucket. The exception is a back-fill, which creates
    buckets for old hours and skips hours without events. In this case, the manifest of the later
    bucket names the earlier one as its predecessor, and no fault is reported.

    Args:
        event_type: Event type to name in the findings.
        hours: Hours that have a bucket, in ascending order.
        reports: Verification results of these buckets, which contain the manifests. Every gap
            before a bucket without a report is a fault.

    Returns:
        One finding for each gap, which names the first missing hour; empty if there are none.
    """
    findings = []
    named = {
        r.hour: r.manifest.previous.hour for r in reports if r.manifest and r.manifest.previous
    }
    for before, after in itertools.pairwise(hours):
        if before.next() != after and named.get(after) != str(before):
            count = (after.start_s - before.end_s) // before.length_s
            detail = f"{count} missing between {before} and {after}, although hours close in order"
            findings.append(
                BucketFinding(
                    type=event_type,
                    hour=str(before.next()),
                    kind=BucketFault.MISSING_BUCKET,
                    detail=detail,
                )
            )
    return findings


def verify_bucket(storage: Storage, event_type: str, hour: Hour) -> BucketReport:
    """Verify a bucket against its manifest.

    All files are completely read and decoded, so the duration depends on the size of the bucket.

    Args:
        storage: Storage with the buckets.
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        A report with all faults. A missing or invalid manifest is also a fault. Of a bucket that
        was removed by retention, only the marker in its tombstone is verified.

    Raises:
        NotClosed: The bucket's folder does not exist, and the bucket was not removed.
        BadTombstone: The bucket has no marker, and the tombstone of its day is damaged.
        StorageError: Storage is unavailable.
    """
    check = _Check(storage, event_type, hour)
    try:
        manifest = read_manifest(storage, event_type, hour)
    except BucketRemoved as error:
        return check.removed(error.bucket.manifest)
    except NotClosed:
        if not storage.exists(check.folder):
            raise
        check.add(BucketFault.MISSING_MARKER, f"the folder has no {MARKER}")
        return check.verdict(None)
    except BadMarker as error:
        check.add(BucketFault.BAD_MARKER, str(error))
        return check.verdict(None)
    check.run(manifest)
    return check.verdict(manifest)


def find_late_clashes(
    storage: Storage, event_type: str, reports: Iterable[BucketReport]
) -> list[BucketFinding]:
    """Find late events that appear in more than one bucket.

    A late event is stored in a later bucket than the bucket of its hour. The late events of all
    reports are compared with each other, and with the events in the buckets of their hours. Buckets
    that are damaged or not closed are skipped.

    Args:
        storage: Storage with the buckets.
        event_type: Event type of all reports.
        reports: Results of `verify_bucket`.

    Returns:
        Findings of type `DUPLICATE`, which name the two buckets and some of the ids that they have
        in common; empty if each late event appears only once.
    """
    late: dict[bytes, Hour] = {}
    findings = []
    for verdict in reports:
        both = [
            event_id
            for event_id in _split_ids(verdict.late_ids)
            if late.setdefault(event_id, verdict.hour) != verdict.hour
        ]
        if both:
            findings.append(
                _clash(
                    event_type,
                    verdict.hour,
                    f"{_format_ids(both)} as late events here and in {late[both[0]]}",
                )
            )
    for origin in sorted(
        {
            Hour.containing(EventId(event_id).time_ms, hour.length_s)
            for event_id, hour in late.items()
        }
    ):
        try:
            events = read_events(
                storage, event_type, origin, read_manifest(storage, event_type, origin)
            )
            both = [
                event["event_id"]
                for event in events
                if late.get(event["event_id"], origin) != origin
            ]
        except (NotClosed, BadMarker, DamagedBucketFile):
            continue  # before the type's first hour; or a finding of that bucket's own check
        if both:
            findings.append(
                _clash(
                    event_type,
                    late[both[0]],
                    f"{_format_ids(both)} as late events here, and also in their own hour, "
                    f"{origin}",
                )
            )
    return findings


def _clash(event_type: str, hour: Hour, detail: str) -> BucketFinding:
    return BucketFinding(type=event_type, hour=str(hour), kind=BucketFault.DUPLICATE, detail=detail)


@dataclasses.dataclass(slots=True, kw_only=True)
class _Content:
    bytes: int = 0
    digest: str = ""
    ids: bytearray = dataclasses.field(default_factory=bytearray)
    whole: bool = False

    @property
    def records(self) -> int:
        return len(self.ids) // ID_SIZE


class _Check:
    def __init__(self, storage: Storage, event_type: str, hour: Hour) -> None:
        self.folder = hour.bucket_path(event_type)
        self._storage = storage
        self._type = event_type
        self._hour = hour
        self._findings: list[BucketFinding] = []
        self._contents: dict[str, _Content] = {}
        self._codec: AvroCodec | None = None

    def add(self, kind: BucketFault, detail: str, file: str | None = None) -> None:
        self._findings.append(
            BucketFinding(
                type=self._type, hour=str(self._hour), kind=kind, file=file, detail=detail
            )
        )

    def verdict(self, manifest: Manifest | None) -> BucketReport:
        return BucketReport(
            type=self._type,
            hour=self._hour,
            manifest=manifest,
            findings=tuple(self._findings),
            events=sum(content.records for content in self._contents.values()),
            size=sum(content.bytes for content in self._contents.values()),
            late_ids=self._late_ids(),
        )

    def removed(self, manifest: Manifest) -> BucketReport:
        self._check_chain(manifest.previous)
        if self._storage.exists(self.folder):
            self.add(
                BucketFault.UNFINISHED_REMOVAL,
                "the folder still exists; `hourmark bucket expire --execute` removes it",
            )
        return dataclasses.replace(self.verdict(manifest), is_removed=True)

    def _late_ids(self) -> bytes:
        return b"".join(
            content.ids for name, content in self._contents.items() if name.startswith(LATE_PREFIX)
        )

    def run(self, manifest: Manifest) -> None:
        self._check_chain(manifest.previous)
        self._codec = manifest.files_codec
        if manifest.codec is not None and self._codec is None:
            self.add(
                BucketFault.CODEC,
                f"the manifest states the codec {manifest.codec}, but lists no files",
            )
        sizes = list_bucket_files(self._storage, self.folder)
        listed = {file.name: file for file in manifest.files}
        parquet = {file.name: file for file in manifest.parquet}
        for name in sorted(sizes.keys() - listed.keys() - parquet.keys() - {MARKER}):
            self.add(
                BucketFault.EXTRA_FILE, "is in the folder but not listed in the manifest", name
            )
        if len(listed) + len(parquet) != len(manifest.files) + len(manifest.parquet):
            self.add(BucketFault.BAD_MARKER, "the manifest lists a file twice")
        records = {name: file.records for name, file in listed.items()}
        records |= {name: file.records for name, file in parquet.items()}
        for name, count in records.items():
            if name not in sizes:
                self.add(
                    BucketFault.MISSING_FILE, f"the manifest lists it, with {count} events", name
                )
        for file in listed.values():
            if file.name in sizes:
                self._check_file(file)
        self._check_totals(manifest)
        self._check_parquet(manifest, [file for file in parquet.values() if file.name in sizes])

    def _check_parquet(self, manifest: Manifest, present: Sequence[ParquetFile]) -> None:
        for file in present:
            with self._storage.open(f"{self.folder}/{file.name}") as opened:
                content = DigestingReader(opened)
                content.read_rest()
            self._check_bytes(file, content.bytes, content.digest.hexdigest())
        for avro in manifest.files if manifest.parquet else ():
            files = [file for file in present if file.rows_of == avro.name]
            if not self._contents.get(avro.name, _Content()).whole:
                continue  # reported above
            for name, difference in find_parquet_differences(
                self._storage, self.folder, avro, files, self._hour.length_s
            ):
                self.add(BucketFault.PARQUET, difference, name)
        unknown = {file.rows_of for file in manifest.parquet} - {f.name for f in manifest.files}
        for name in sorted(unknown):
            self.add(BucketFault.BAD_MARKER, f"Parquet files refer to {name}, which is not listed")

    def _check_chain(self, recorded: PreviousMarker | None) -> None:
        before = self._bucket_before(recorded)
        actual = None if before is None else self._reference(before)
        if recorded != actual:
            self.add(
                BucketFault.CHAIN,
                f"the previous marker is {_format_marker(actual)}, but the manifest states "
                f"{_format_marker(recorded)}",
                MARKER,
            )

    def _reference(self, hour: Hour) -> PreviousMarker | None:
        try:
            marker = read_marker(self._storage, self._type, hour)
        except BucketRemoved as error:
            return error.bucket.reference
        except NotClosed:
            return None
        return PreviousMarker.from_marker(str(hour), marker)

    def _bucket_before(self, recorded: PreviousMarker | None) -> Hour | None:
        # The bucket of the hour before; where it does not exist, the one that the manifest names.
        if self._hour.start_s:
            before = self._hour.previous()
            if recorded is None or self._storage.exists(before.bucket_path(self._type)):
                return before
        with contextlib.suppress(ValueError):  # a label of another length is another bucket
            return None if recorded is None else Hour.parse(recorded.hour, self._hour.length_s)
        return None

    def _check_file(self, file: BucketFile) -> None:
        content = self._contents[file.name] = self._read(file)
        self._check_bytes(file, content.bytes, content.digest)
        if content.whole and content.records != file.records:
            self.add(
                BucketFault.COUNT,
                f"{content.records} events, but the manifest states {file.records}",
                file.name,
            )
        self._check_hours(file, content)

    def _check_bytes(self, file: BucketFile | ParquetFile, size: int, digest: str) -> None:
        if size != file.bytes:
            self.add(
                BucketFault.SIZE, f"{size} bytes, but the manifest states {file.bytes}", file.name
            )
        if digest != file.blake2b:
            self.add(
                BucketFault.DIGEST,
                f"blake2b {digest}, but the manifest states {file.blake2b}",
                file.name,
            )

    def _read(self, file: BucketFile) -> _Content:
        content = _Content()
        with self._storage.open(f"{self.folder}/{file.name}") as opened:
            reader = DigestingReader(opened)
            try:
                events = fastavro.reader(cast(BinaryIO, reader))
                self._check_schema(file, events.metadata)
                self._check_codec(file, events.codec)
                for event in events:
                    content.ids += EventId(cast(Mapping[str, Any], event)["event_id"])
                content.whole = True
            except StorageError:
                raise
            # damaged bytes make a decoder raise anything; each is a finding
            except Exception as error:  # noqa: BLE001
                self.add(
                    BucketFault.UNREADABLE,
                    f"after {content.records} events: {type(error).__name__}: {error}",
                    file.name,
                )
            reader.read_rest()
            content.bytes, content.digest = reader.bytes, reader.digest.hexdigest()
        return content

    def _check_schema(self, file: BucketFile, metadata: Mapping[str, str]) -> None:
        found = fingerprint(json.loads(metadata["avro.schema"]))
        if found != file.schema_fingerprint:
            self.add(
                BucketFault.SCHEMA,
                f"fingerprint {found}, but the manifest states {file.schema_fingerprint}",
                file.name,
            )

    def _check_codec(self, file: BucketFile, found: str) -> None:
        if found != self._codec:
            self.add(
                BucketFault.CODEC,
                f"codec {found}, but according to the manifest it is {self._codec}",
                file.name,
            )

    def _check_hours(self, file: BucketFile, content: _Content) -> None:
        starts = hour_starts_s(_split_words(content.ids)[0], self._hour.length_s)
        if file.name.startswith(ON_TIME_PREFIX):
            wrong, rule = (
                starts != self._hour.start_s,
                "is not in this hour, although the file contains on-time events",
            )
        elif file.name.startswith(LATE_PREFIX):
            wrong, rule = (
                starts >= self._hour.start_s,
                "is not in an earlier hour, although the file contains late events",
            )
        else:
            self.add(
                BucketFault.BAD_MARKER,
                f"names of bucket files must begin with {ON_TIME_PREFIX} or {LATE_PREFIX}",
                file.name,
            )
            return
        if wrong.any():
            found = [
                event_id
                for event_id, is_wrong in zip(_split_ids(content.ids), wrong, strict=True)
                if is_wrong
            ]
            self.add(BucketFault.HOUR, f"{_format_ids(found)} {rule}", file.name)
        elif file.origin_hour is not None and any(
            label != file.origin_hour for label in self._by_hour(starts)
        ):
            self.add(
                BucketFault.HOUR,
                f"contains events of hours other than its origin hour {file.origin_hour}",
                file.name,
            )

    def _check_totals(self, manifest: Manifest) -> None:
        listed = sum(file.records for file in manifest.files)
        if manifest.events != listed:
            self.add(
                BucketFault.COUNT,
                f"the manifest states {manifest.events} events, but its files have {listed} in "
                "total",
            )
        ids = b"".join(content.ids for content in self._contents.values())
        self._check_distinct(ids)
        if len(self._contents) != len(manifest.files) or not all(
            content.whole for content in self._contents.values()
        ):
            return  # reported above; sums over a part would only repeat it
        total = int(_split_words(ids)[1].sum(dtype=np.uint64))
        if total != _parse_hex(manifest.id_sum):
            self.add(
                BucketFault.ID_SUM,
                f"the ids add up to {total:016x}, but the manifest states {manifest.id_sum}",
            )
        late = self._by_hour(hour_starts_s(_split_words(self._late_ids())[0], self._hour.length_s))
        if late != manifest.late:
            self.add(
                BucketFault.LATE,
                f"late events by origin hour are {late}, but the manifest states {manifest.late}",
            )

    def _check_distinct(self, ids: bytes) -> None:
        ascending = np.sort(
            np.frombuffer(ids, f"S{ID_SIZE}")
        )  # numpy sorts and compares them as ids
        again = _split_ids(ascending[1:][ascending[1:] == ascending[:-1]].tobytes())
        if again:
            examples = {*again[:_EXAMPLES_MAX]}
            files = [
                name
                for name, content in self._contents.items()
                if not examples.isdisjoint(_split_ids(content.ids))
            ]
            self.add(
                BucketFault.DUPLICATE, f"{_format_ids(again)} more than once, in {', '.join(files)}"
            )

    def _by_hour(self, starts: Int64s) -> dict[str, int]:
        hours, counts = np.unique(starts, return_counts=True)
        labels = (str(Hour(start, self._hour.length_s)) for start in hours.tolist())
        return dict(zip(labels, counts.tolist(), strict=True))


def _split_words(ids: bytes | bytearray) -> tuple[UInt64s, UInt64s]:
    pairs = np.frombuffer(ids, dtype=">u8").astype(np.uint64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _split_ids(ids: bytes | bytearray) -> list[bytes]:
    return [bytes(ids[start : start + ID_SIZE]) for start in range(0, len(ids), ID_SIZE)]


def _format_marker(previous: PreviousMarker | None) -> str:
    return f"of {previous.hour}, blake2b {previous.blake2b}" if previous else "none"


def _format_ids(ids: Sequence[bytes]) -> str:
    named = ", ".join(str(EventId(event_id)) for event_id in ids[:_EXAMPLES_MAX])
    return f"{len(ids)} ({named}{', …' if len(ids) > _EXAMPLES_MAX else ''})"


def _parse_hex(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None
