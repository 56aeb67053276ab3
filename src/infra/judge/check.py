"""The comparison: every event of every closed bucket against the line it claims, then every line against what was found."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import IO, Any, Final

import fastavro
import httpx

from infra.judge.buckets import Bucket, closed_buckets
from infra.judge.expectations import Expectations
from infra.judge.matching import Event, Matcher
from infra.judge.report import Kind, Report
from infra.judge.sources import open_sources
from infra.judge.webhdfs import WebHdfs, hdfs_path

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def judge(expectations: Expectations, hdfs: WebHdfs) -> Report:
    """Compare all source files with all closed buckets. OSError or httpx.HTTPError where something cannot be read."""
    sources = open_sources(expectations)
    report = Report(digests_checked=expectations.host_id is not None)
    try:
        matcher = Matcher(expectations, sources, report)
        root = hdfs_path(expectations.root)
        for bucket in closed_buckets(hdfs, root):
            _BucketCheck(hdfs, root, bucket, matcher, report).run()
        matcher.settle()
    finally:
        for source in sources.values():
            source.close()
    return report


class _BucketCheck:
    """One bucket: its marker against its files, its files against their time, its events against their lines."""

    def __init__(self, hdfs: WebHdfs, root: str, bucket: Bucket, matcher: Matcher, report: Report) -> None:
        self._hdfs, self._root, self._bucket = hdfs, root, bucket
        self._matcher, self._report = matcher, report
        self._origins: Counter[str] = Counter()  # late events by the hour they are of
        self._tails = 0  # sum of the ids' last 8 bytes

    def run(self) -> None:
        marker, count = self._bucket.marker, self._report.of_type(self._bucket.type)
        count.buckets += 1
        count.buckets_with_events += 1 if marker["files"] else 0
        count.duplicates_removed += marker["duplicates_removed"]
        count.grades[marker["grade"]] = count.grades.get(marker["grade"], 0) + 1
        for fault in self._bucket.faults():
            self._object(fault)
        for file in marker["files"]:
            self._file(file)
        if self._origins != marker["late"]:
            self._object(f"the marker says late events {marker['late']}, there are {dict(self._origins)}")
        if int(marker["id_sum"], 16) != self._tails % 2**64:
            self._object("the marker's sum of ids is not that of its events")

    def _file(self, file: Mapping[str, Any]) -> None:
        name = file["name"]
        path = f"{self._bucket.path}/{name}"
        try:
            opened = self._hdfs.open(f"{self._root}/{path}")
        except httpx.HTTPStatusError as error:
            return self._object(f"the marker lists {name}, which cannot be opened ({error.response.status_code})")
        if (opened.size, opened.blake2b) != (file["bytes"], file["blake2b"]):
            self._object(f"{name} has not the size and digest that the marker says")
        records = 0
        with opened.content as content:
            for event in self._decoded(content, name):
                records += 1
                self._event(path, event, late=name.startswith("late-"))
        if records != file["records"]:
            self._object(f"{name} holds {records} events, the marker says {file['records']}")
        return None

    def _event(self, path: str, event: Event, *, late: bool) -> None:
        bucket, count = self._bucket, self._report.of_type(self._bucket.type)
        time_ms = (event["event_time"] - _EPOCH) // _MILLISECOND
        self._tails += int.from_bytes(event["event_id"][8:], "big")
        count.in_buckets += 1
        if late:
            count.late += 1
            self._origins[bucket.label(time_ms)] += 1
        if not (time_ms < bucket.start_ms if late else bucket.start_ms <= time_ms < bucket.end_ms):
            self._report.add(
                Kind.MISPLACED, event["source"], event["position"], f"in {path}, with the time {event['event_time']}"
            )
        self._matcher.take(bucket.type, path, event, time_ms)

    def _decoded(self, content: IO[bytes], name: str) -> Iterator[Event]:
        try:
            for event in fastavro.reader(content):
                assert isinstance(event, dict), "an event is a record"
                yield event
        except (ValueError, EOFError, KeyError, IndexError, TypeError, OverflowError) as error:  # what fastavro raises on garbage
            self._object(f"{name} cannot be read to its end as Avro: {error!r}")

    def _object(self, fault: str) -> None:
        self._report.add(Kind.MANIFEST, self._bucket.path, None, fault)
