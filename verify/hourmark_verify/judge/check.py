"""The comparison: every event of every closed bucket against the line it claims, then every line
against what was found.
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
    read_tree,
)
from hourmark_verify.judge.expectations import Expectations
from hourmark_verify.judge.marker import MarkerFile
from hourmark_verify.judge.marker_checks import (
    BucketContents,
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

# The envelope below logical types: what every event begins with.
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


def verify_delivery(told: Expectations, hdfs: WebHdfsReader) -> JudgeReport:
    """Compare all source files with all closed buckets and return the report.

    Args:
        told: expectations of the verification run.
        hdfs: WebHDFS client.

    Raises:
        OSError: if a source file cannot be read.
        httpx.HTTPError: if HDFS cannot be read.
    """
    report = JudgeReport()
    sources = open_sources(told, report)
    report.digests_checked = all(source.host_ids for source in sources.values())
    try:
        _Verification(told, hdfs, EventMatcher(told, sources, report), report).run()
    finally:
        for source in sources.values():
            source.close()
    return report


@dataclasses.dataclass
class _Verification:
    told: Expectations
    hdfs: WebHdfsReader
    matcher: EventMatcher
    report: JudgeReport

    def __post_init__(self) -> None:
        self._root = hdfs_path(self.told.root)
        self._buckets: dict[str, StoredBucket] = {}
        self._fingerprints: dict[int, str] = {}  # by schema id

    def run(self) -> None:
        """All buckets, those too that are closed meanwhile, until a last look shows nothing that
        was not judged.
        """
        seen: HdfsTree = {}
        while new := bucket_paths(tree := read_tree(self.hdfs, self._root)).difference(
            bucket_paths(seen)
        ):
            self._look_again(seen, tree)
            for path in sorted(new):
                self._bucket(path)
            seen = tree
        self._look_again(seen, tree)
        for path in find_unlisted(tree, self._buckets):
            self.report.add(FindingKind.UNLISTED, path, "no marker speaks of it")
        for _, buckets in itertools.groupby(
            sorted(self._buckets.items()), key=lambda item: item[1].type
        ):
            chain = [bucket for _, bucket in buckets]
            for path, fault in itertools.chain(
                find_chain_faults(chain), find_offset_faults(chain), find_balance_faults(chain)
            ):
                self._object(path, fault)
        gone = [row for row in self.told.destroyed if self.matcher.waive(row)]
        self.report.destroyed = len(gone)
        for kind, path, detail in find_destroyed_event_faults(gone, list(self._buckets.values())):
            self.report.add(kind, path, detail)
        self.matcher.settle()

    def _look_again(self, before: HdfsTree, now: HdfsTree) -> None:
        for path, change in find_changes(group_by_bucket(before), group_by_bucket(now)):
            self.report.add(FindingKind.CHANGED, path, change)

    def _bucket(self, path: str) -> None:
        try:
            bucket = self._buckets[path] = read_bucket(self.hdfs, self._root, path)
        except ValueError as error:
            return self._object(path, str(error))
        marker, count = bucket.marker, self.report.of_type(bucket.type)
        count.buckets += 1
        count.buckets_with_events += bool(marker.files)
        count.duplicates_removed += marker.duplicates_removed
        count.grades[marker.grade] = count.grades.get(marker.grade, 0) + 1
        counted = BucketContents()
        for file in marker.files:
            self._file(bucket, file, counted)
        grades = [
            *self.told.grades,
            *(["forced"] if bucket.hour in self.told.forced.get(bucket.type, ()) else []),
        ]
        for fault in find_contradictions(bucket, counted, grades):
            self._object(path, fault)
        return None

    def _file(self, bucket: StoredBucket, file: MarkerFile, counted: BucketContents) -> None:
        path = f"{bucket.path}/{file.name}"
        try:
            opened = self.hdfs.open(f"{self._root}/{path}")
        except httpx.HTTPStatusError as error:
            return self._object(
                path, f"the marker lists it, and it cannot be opened ({error.response.status_code})"
            )
        records = 0
        with opened.content as content:
            if (opened.size, opened.blake2b) != (file.bytes, file.blake2b):
                return self._object(path, "it has not the size and digest that the marker says")
            try:
                reader, schema = self._opened(bucket, file, content)
                made_by = self.matcher.readers(bucket.type, schema["fields"][len(_ENVELOPE) :])
                for event in _decode_events(reader, schema):
                    records += 1
                    self._event(bucket, path, event, counted)
                    self.matcher.take(bucket.type, path, event, made_by)
            # whatever decoders raise on what is no Avro of this type
            except Exception as error:  # noqa: BLE001
                self._object(
                    path, f"it cannot be read to its end as Avro of {bucket.type}: {error!r}"
                )
        if records != file.records:
            self._object(path, f"it holds {records} events, the marker says {file.records}")
        return None

    def _event(
        self, bucket: StoredBucket, path: str, event: Event, counted: BucketContents
    ) -> None:
        time_ms, late = event["event_time"], path.rpartition("/")[2].startswith("late-")
        counted.tails += int.from_bytes(event["event_id"][8:], "big")
        counted.origins[bucket.label(time_ms)] += 1
        count = self.report.of_type(bucket.type)
        count.in_buckets += 1
        count.late += late
        if not (time_ms < bucket.start_ms if late else bucket.start_ms <= time_ms < bucket.end_ms):
            self.report.add(
                FindingKind.MISPLACED,
                event["source"],
                f"in {path}, with the time {time_ms} ms",
                event["position"],
            )

    def _opened(
        self, bucket: StoredBucket, file: MarkerFile, content: IO[bytes]
    ) -> tuple[Any, Any]:
        """A reader of blocks, and the schema below logical types."""
        reader: Any = fastavro.block_reader(content)
        declared = json.loads(reader.metadata["avro.schema"])
        mark = schema_fingerprint(declared)
        if {mark} != {file.schema_fingerprint, self._fingerprints.setdefault(file.schema_id, mark)}:
            self._object(
                bucket.path,
                f"{file.name} has a schema of the fingerprint {mark}, not that of schema "
                f"{file.schema_id}",
            )
        schema = strip_annotations(declared)
        if (
            schema["name"] != bucket.type.replace("-", "_")
            or schema["fields"][: len(_ENVELOPE)] != _ENVELOPE
        ):
            raise ValueError("the schema is not that of this type, or has another envelope")
        return reader, schema

    def _object(self, path: str, fault: str) -> None:
        self.report.add(FindingKind.MANIFEST, path, fault)


def _decode_events(reader: Any, plain_schema: Any) -> Iterator[Event]:
    """Events as they stand below logical types: dates of any year are whole numbers."""
    schema = fastavro.parse_schema(plain_schema, named_schemas={})
    for block in reader:
        for _ in range(block.num_records):
            event: Any = fastavro.schemaless_reader(block.bytes_, schema, None)
            yield event
        if block.bytes_.read(1):
            raise ValueError("a block holds more than its events")
