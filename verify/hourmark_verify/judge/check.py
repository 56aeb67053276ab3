"""The verification of a site: all events in closed buckets are compared with all source lines.

First, each event is compared with its source line. Then each source line without an event is
reported as lost.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import IO, Any, Final

import fastavro
import httpx

from hourmark_verify.judge.buckets import (
    HdfsTree,
    StoredBucket,
    bucket_paths,
    find_changes,
    find_unlisted,
    group_by_bucket,
    read_bucket,
    read_tombstone,
    read_tree,
    tombstone_paths,
)
from hourmark_verify.judge.expectations import Expectations
from hourmark_verify.judge.marker import MarkerFile, MarkerParquetFile
from hourmark_verify.judge.marker_checks import (
    BucketTotals,
    find_balance_faults,
    find_chain_faults,
    find_contradictions,
    find_destroyed_event_faults,
    find_offset_faults,
    schema_fingerprint,
)
from hourmark_verify.judge.matching import Event, EventMatcher
from hourmark_verify.judge.report import FindingKind, JudgeReport
from hourmark_verify.judge.sources import open_sources
from hourmark_verify.judge.values import strip_annotations
from hourmark_verify.judge.webhdfs import WebHdfsReader, hdfs_path

# The first fields of every event, without their logical types.
_ENVELOPE: Final = [
    {
        "name": "event_id",
        "type": {"type": "fixed", "name": "EventId", "namespace": "hourmark", "size": 16},
    },
    {"name": "event_time", "type": {"type": "long"}},
    {"name": "host", "type": "string"},
    {"name": "source", "type": "string"},
    {
        "name": "file",
        "type": [
            "null",
            {
                "type": "record",
                "name": "File",
                "namespace": "hourmark",
                "fields": [
                    {"name": "id", "type": "string"},
                    {"name": "generation", "type": "long"},
                ],
            },
        ],
    },
    {"name": "position", "type": "long"},
]


def verify_delivery(expectations: Expectations, hdfs: WebHdfsReader) -> JudgeReport:
    """Compare all source files with all closed buckets, and return a report of the discrepancies.

    Args:
        expectations: Source files, event types and settings to verify against.
        hdfs: WebHDFS client; the caller closes it.

    Returns:
        The report. Its property `passed` is True if at least one event was compared and there are
        no discrepancies.

    Raises:
        OSError: A source file cannot be read.
        httpx.HTTPError: HDFS cannot be read.
    """
    report = JudgeReport()
    sources = open_sources(expectations, report)
    report.digests_checked = all(source.host_ids for source in sources.values())
    try:
        _Verification(expectations, hdfs, EventMatcher(expectations, sources, report), report).run()
    finally:
        for source in sources.values():
            source.close()
    return report


@dataclasses.dataclass
class _Verification:
    expectations: Expectations
    hdfs: WebHdfsReader
    matcher: EventMatcher
    report: JudgeReport

    def __post_init__(self) -> None:
        self._root = hdfs_path(self.expectations.root)
        self._buckets: dict[str, StoredBucket] = {}
        self._removed: dict[str, StoredBucket] = {}  # from tombstones
        self._fingerprints: dict[int, str] = {}  # by schema id

    def run(self) -> None:
        # The folder tree is read again until it contains no unchecked bucket.
        seen: HdfsTree = {}
        while new := bucket_paths(tree := read_tree(self.hdfs, self._root)).difference(
            bucket_paths(seen)
        ):
            self._report_changes(seen, tree)
            for path in sorted(new):
                self._check_bucket(path)
            seen = tree
        self._read_tombstones(tree)
        self._report_changes(seen, tree)
        for path in find_unlisted(tree, self._buckets):
            self.report.add(FindingKind.UNLISTED, path, "no marker lists it")
        known = self._removed | self._buckets
        for _, buckets in itertools.groupby(sorted(known.items()), key=lambda item: item[1].type):
            chain = [bucket for _, bucket in buckets]
            for path, fault in itertools.chain(
                find_chain_faults(chain), find_offset_faults(chain), find_balance_faults(chain)
            ):
                self._add_marker_finding(path, fault)
        gone = [row for row in self.expectations.destroyed if self.matcher.mark_destroyed(row)]
        self.report.destroyed = len(gone)
        for kind, path, detail in find_destroyed_event_faults(gone, list(known.values())):
            self.report.add(kind, path, detail)
        for bucket in self._removed.values():
            if bucket.path not in self._buckets:  # otherwise its events were compared
                self.matcher.admit_removed(bucket.type, bucket.marker.events)
        self.matcher.finish()

    def _read_tombstones(self, tree: HdfsTree) -> None:
        for path in sorted(tombstone_paths(tree)):
            try:
                removed = read_tombstone(self.hdfs, self._root, path)
            except ValueError as error:
                self._add_marker_finding(path, str(error))
            else:
                self._removed |= {bucket.path: bucket for bucket in removed}

    def _report_changes(self, before: HdfsTree, now: HdfsTree) -> None:
        for path, change in find_changes(group_by_bucket(before), group_by_bucket(now)):
            if path not in self._removed:
                self.report.add(FindingKind.CHANGED, path, change)

    def _check_bucket(self, path: str) -> None:
        try:
            bucket = self._buckets[path] = read_bucket(self.hdfs, self._root, path)
        except ValueError as error:
            return self._add_marker_finding(path, str(error))
        marker, count = bucket.marker, self.report.type_count(bucket.type)
        count.buckets += 1
        count.buckets_with_events += bool(marker.files)
        count.duplicates_removed += marker.duplicates_removed
        count.grades[marker.grade] = count.grades.get(marker.grade, 0) + 1
        contents = BucketTotals()
        for file in marker.files:
            self._check_file(bucket, file, contents)
        for parquet in marker.parquet:
            self._check_parquet_file(bucket, parquet)
        grades = [
            *self.expectations.grades,
            *(["forced"] if bucket.hour in self.expectations.forced.get(bucket.type, ()) else []),
        ]
        for fault in find_contradictions(bucket, contents, grades):
            self._add_marker_finding(path, fault)
        return None

    def _check_file(self, bucket: StoredBucket, file: MarkerFile, contents: BucketTotals) -> None:
        path = f"{bucket.path}/{file.name}"
        try:
            opened = self.hdfs.open(f"{self._root}/{path}")
        except httpx.HTTPStatusError as error:
            return self._add_marker_finding(
                path,
                f"listed in the marker, but cannot be opened (HTTP {error.response.status_code})",
            )
        records = 0
        with opened.content as content:
            if (opened.size, opened.blake2b) != (file.bytes, file.blake2b):
                return self._add_marker_finding(
                    path, "size or digest differ from those in the marker"
                )
            try:
                reader, schema = self._open_avro(bucket, file, content)
                interpreters = self.matcher.interpreters_for(
                    bucket.type, schema["fields"][len(_ENVELOPE) :]
                )
                for event in _decode_events(reader, schema):
                    records += 1
                    self._count_event(bucket, path, event, contents)
                    self.matcher.match_event(bucket.type, path, event, interpreters)
            # decoders raise exceptions of many types for invalid input
            except Exception as error:  # noqa: BLE001
                self._add_marker_finding(
                    path, f"cannot be decoded completely as Avro of type {bucket.type}: {error!r}"
                )
        if records != file.records:
            self._add_marker_finding(
                path, f"holds {records} events, but the marker records {file.records}"
            )
        return None

    def _check_parquet_file(self, bucket: StoredBucket, file: MarkerParquetFile) -> None:
        path = f"{bucket.path}/{file.name}"
        try:
            opened = self.hdfs.open(f"{self._root}/{path}")
        except httpx.HTTPStatusError as error:
            return self._add_marker_finding(
                path,
                f"listed in the marker, but cannot be opened (HTTP {error.response.status_code})",
            )
        with opened.content:
            if (opened.size, opened.blake2b) != (file.bytes, file.blake2b):
                self._add_marker_finding(path, "size or digest differ from those in the marker")
        return None

    def _count_event(
        self, bucket: StoredBucket, path: str, event: Event, contents: BucketTotals
    ) -> None:
        time_ms, late = event["event_time"], path.rpartition("/")[2].startswith("late-")
        contents.id_sum += int.from_bytes(event["event_id"][8:], "big")
        contents.events_by_hour[bucket.label(time_ms)] += 1
        count = self.report.type_count(bucket.type)
        count.in_buckets += 1
        count.late += late
        if not (time_ms < bucket.start_ms if late else bucket.start_ms <= time_ms < bucket.end_ms):
            self.report.add(
                FindingKind.MISPLACED,
                event["source"],
                f"in {path}, with the event time {time_ms} ms, which is outside the bucket",
                event["position"],
            )

    def _open_avro(
        self, bucket: StoredBucket, file: MarkerFile, content: IO[bytes]
    ) -> tuple[Any, Any]:
        reader: Any = fastavro.block_reader(content)
        declared = json.loads(reader.metadata["avro.schema"])
        mark = schema_fingerprint(declared)
        if {mark} != {file.schema_fingerprint, self._fingerprints.setdefault(file.schema_id, mark)}:
            self._add_marker_finding(
                bucket.path,
                f"{file.name} has the schema fingerprint {mark}, which is not that of schema id "
                f"{file.schema_id}",
            )
        if reader.codec != (codec := bucket.marker.codec or "zstandard"):
            self._add_marker_finding(
                bucket.path,
                f"{file.name} has the codec {reader.codec}, but by the marker it is {codec}",
            )
        schema = strip_annotations(declared)
        if (
            schema["name"] != bucket.type.replace("-", "_")
            or schema["fields"][: len(_ENVELOPE)] != _ENVELOPE
        ):
            raise ValueError(
                "the schema has another name or other envelope fields than this event type"
            )
        return reader, schema

    def _add_marker_finding(self, path: str, fault: str) -> None:
        self.report.add(FindingKind.MANIFEST, path, fault)


def _decode_events(reader: Any, plain_schema: Any) -> Iterator[Event]:
    # without logical types, so that dates of all years are integers
    schema = fastavro.parse_schema(plain_schema, named_schemas={})
    for block in reader:
        for _ in range(block.num_records):
            event: Any = fastavro.schemaless_reader(block.bytes_, schema, None)
            yield event
        if block.bytes_.read(1):
            raise ValueError("an Avro block contains bytes after its last event")
