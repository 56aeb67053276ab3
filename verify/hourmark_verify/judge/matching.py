"""Matching of events in HDFS with source lines and API records.

An event of a file is matched by file id, generation and byte offset, an API event by its id.
Detection of duplicate ids needs 16 bytes for each event.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from hourmark_verify.judge.buckets import DEAD_LETTERS
from hourmark_verify.judge.expectations import DestroyedEvent, Expectations
from hourmark_verify.judge.identity import (
    client_event_digest,
    digest_in_event_id,
    event_id,
    line_digest,
    range_id,
)
from hourmark_verify.judge.line_interpreter import ExpectedEvent, LineInterpreter
from hourmark_verify.judge.report import FileCount, FindingKind, JudgeReport
from hourmark_verify.judge.sources import SourceFile, SourceLine
from hourmark_verify.judge.values import equal_values


class EventIdList:
    """A memory-efficient list of event ids that finds duplicates.

    It needs 16 bytes of memory for each id. Call `add` for every event, then `duplicates` once.
    """

    def __init__(self) -> None:
        self._ids = bytearray()

    def add(self, event_id: bytes) -> None:
        """Append an event id to the list.

        Args:
            event_id: The id, exactly 16 bytes.
        """
        assert len(event_id) == 16
        self._ids += event_id

    def duplicates(self) -> Iterator[bytes]:
        """Return the ids that occur more than once, in ascending order.

        The list is sorted in place, so `add` must not be called afterwards.

        Returns:
            An iterator. An id that was added n times occurs n - 1 times.
        """
        ids = np.frombuffer(self._ids, dtype="S16")
        ids.sort()
        # NumPy strips zero bytes at the end
        return (again.ljust(16, b"\0") for again in ids[1:][ids[1:] == ids[:-1]])


Event = Mapping[str, Any]
FileKey = tuple[str, int]  # file id, generation
ENVELOPE: Final = ("event_id", "event_time", "host", "source", "file", "position")
_DEAD_LETTER_FIELDS: Final = (
    "detail",
    "range_id",
    "range_start",
    "range_end",
    "rules",
    "declared_source",
)
_DETAIL_CHARS_MAX: Final = 500


@dataclasses.dataclass
class EventMatcher:
    """A comparison of the events in buckets with their source lines and API records.

    An API record is an event that a client sent to the HTTP API, as the client recorded it.
    Discrepancies are added to `report`. Not thread-safe. Call the methods in this order:

    1. `match_event` once for each event in the buckets
    2. `mark_destroyed` once for each event that a test destroyed on purpose
    3. `finish` once

    Attributes:
        expectations: Event types, API records and settings of the verification.
        sources: Open source files by (file id, generation). The generation is the number of times
            that the file was truncated.
        report: Report that receives findings and counts.
    """

    expectations: Expectations
    sources: dict[tuple[str, int], SourceFile]
    report: JudgeReport

    def __post_init__(self) -> None:
        expectations = self.expectations
        self._newest = LineInterpreter(expectations, expectations.types)
        self._earlier = {
            rules: LineInterpreter(expectations, types)
            for rules, types in expectations.earlier.items()
        }
        self._bucket_files: list[str] = []  # by the number in SourceFile.found_in, less one
        self._ids = EventIdList()
        self._api = {
            (row.type, row.time_ms, client_event_digest(row.type, row.event_id)): row
            for row in expectations.api
        }
        self._posted: set[tuple[str, int, int]] = set()  # keys of _api that were found
        self._removed: Counter[str] = Counter()  # events in removed buckets, by type
        self._waived: dict[str, set[int]] = {}  # by source: lines of destroyed events
        self._ranges: dict[tuple[object, ...], bytes] = {}
        self._copied = [source for source in self.sources.values() if source.expectation.copied]
        # of copied files: the copy that contained the previous event
        self._last_copy: dict[FileKey, SourceFile] = {}

    def interpreters_for(self, event_type: str, fields: list[Any]) -> list[LineInterpreter]:
        """Return the line parsers whose type declarations match the schema of a bucket file.

        There is one parser for each revision of the declarations.

        Args:
            event_type: Name of the event type.
            fields: Avro fields of the type in the bucket file, without `logicalType` and `doc`.

        Returns:
            The parsers that declare exactly these fields, newest revision first. If there are none,
            all parsers.
        """
        every = [self._newest, *self._earlier.values()]
        return [
            r for r in every if event_type in r.types and r.types[event_type].has_fields(fields)
        ] or every

    def match_event(
        self, event_type: str, path: str, event: Event, interpreters: list[LineInterpreter]
    ) -> None:
        """Compare one event of a bucket file with its source line or API record.

        Mismatches are added to the report as findings; no error is raised for them.

        Args:
            event_type: Event type of the bucket, or the type of dead letters (lines that could not
                be parsed).
            path: Path of the bucket file that contains the event.
            event: The decoded event, by field name.
            interpreters: Result of `interpreters_for`. The event is correct if at least one of
                these parsers derives the same event from the line.
        """
        position = event["position"]
        if event["file"] is None:
            return self._match_api_event(event_type, path, event, interpreters)
        source = self._find_source(event)
        if source is None:
            return self._report_foreign(path, event)
        line = source.line_at(position)
        if line is None or line.start != position:
            what = (
                "but the file has no terminated line at this offset"
                if line is None
                else "but no line starts at this offset"
            )
            return self.report.add(
                FindingKind.UNEXPECTED, source.name, f"in {path}, {what}", position
            )
        if line.blank and self.expectations.blank_lines == "counted":
            return self.report.add(
                FindingKind.UNEXPECTED,
                source.name,
                f"in {path}, but the line at this offset is blank",
                position,
            )
        if (before := source.found_in[line.index]) != 0:
            detail = (
                f"second event of this line in {path}, first in {self._bucket_files[before - 1]}"
            )
            return self.report.add(FindingKind.DOUBLED, source.name, detail, position)
        if self._bucket_files[-1:] != [path]:
            self._bucket_files.append(path)
        source.found_in[line.index] = len(self._bucket_files)
        self.report.beyond += line.index >= source.required_lines
        host_id, bits = _find_host_id(source, line, event)
        observed = self.expectations.observed_ms
        if event_type == DEAD_LETTERS:  # it records its time and its rules revision
            observed, interpreters = (
                (event["event_time"],) * 2,
                [self._earlier.get(event.get("rules", ""), self._newest)],
            )
        readings = (
            interpreter.interpret(
                source.expectation, line.content, line.part, observed, line.container
            )
            for interpreter in interpreters
        )
        faults = [
            *self._id_faults(event, bits),
            *self._fewest_faults(event_type, event, readings, source.hosts),
        ]
        if not source.matches_path(event["source"]):
            faults.append(f"its source path is {event['source']!r}")
        if event_type == DEAD_LETTERS and not faults:
            faults += self._range_faults(source, line, event, host_id)
        return self._report_altered(source.name, position, path, faults)

    def _find_source(self, event: Event) -> SourceFile | None:
        # An event of a file that rotation copies may name any copy. The digest in its id identifies
        # the right one.
        place = _file_key(event)
        source = self.sources.get(place)
        if not self._copied or (source is not None and not source.expectation.copied):
            return source
        likely = [self._last_copy[place]] if place in self._last_copy else []
        for copy in itertools.chain(likely, self._copied):
            line = copy.line_at(event["position"])
            digest = (
                line is not None
                and line.start == event["position"]
                and _find_host_id(copy, line, event)[1]
            )
            if digest == digest_in_event_id(event["event_id"]):
                self._last_copy[place] = copy
                return copy
        return source

    def mark_destroyed(self, row: DestroyedEvent) -> bool:
        """Record that an event was destroyed, so that its absence is not reported as a loss.

        Call this method after the last call of `match_event`. If no line or API record matches the
        event, a finding is added to the report.

        Args:
            row: The destroyed event.

        Returns:
            True if the event is in no bucket and was not marked before; otherwise False.
        """
        recorded_id = bytes.fromhex(row.event_id)
        if event_id(row.time_ms, digest_in_event_id(recorded_id)) != recorded_id:
            return self._report_unmatched_destroyed(row)
        if row.file_id is None:
            key = row.type, row.time_ms, digest_in_event_id(recorded_id)
            if key not in self._api:
                return self._report_unmatched_destroyed(row)
            missing = key not in self._posted
            self._posted.add(key)
            return missing
        claim = {
            "event_id": recorded_id,
            "file": {"id": row.file_id, "generation": row.generation},
            "position": row.position,
        }
        source = self._find_source(claim)
        line = source.line_at(row.position) if source is not None else None
        if source is None or line is None or source.type_of_line(line.index) != row.type:
            return self._report_unmatched_destroyed(row)
        if _find_host_id(source, line, claim)[1] not in (None, digest_in_event_id(recorded_id)):
            return self._report_unmatched_destroyed(row)
        waived = self._waived.setdefault(source.name, set())
        missing = source.found_in[line.index] == 0 and line.index not in waived
        waived.add(line.index)
        return missing

    def _report_unmatched_destroyed(self, row: DestroyedEvent) -> bool:
        self.report.add(
            FindingKind.SOURCE,
            row.type,
            f"event {row.event_id} is listed as destroyed, but matches no line and no API record",
            row.position,
        )
        return False

    def admit_removed(self, event_type: str, events: int) -> None:
        """Admit that events of a type are in no bucket, because their bucket was removed.

        At most this number of lines and API records without an event is counted as removed instead
        of lost. It cannot be checked that they were in this bucket.

        Args:
            event_type: Event type of the removed bucket, or the type of dead letters.
            events: Number of events in the bucket, according to its marker.
        """
        self._removed[event_type] += events

    def _take_removed(self, event_type: str) -> bool:
        for name in (event_type, DEAD_LETTERS):
            if self._removed[name]:
                self._removed[name] -= 1
                self.report.removed += 1
                return True
        return False

    def finish(self) -> None:
        """Complete the report after all events were compared.

        Duplicate ids and source lines without an event are added as findings. Lines are counted by
        file and type. Call this method once, after all calls of `match_event` and `mark_destroyed`.
        """
        for duplicate in self._ids.duplicates():
            self.report.add(
                FindingKind.DOUBLED,
                self.expectations.root,
                f"several events have the id {duplicate.hex()}",
            )
        for source in self.sources.values():
            self._count_file(source)
        for row in (row for key, row in self._api.items() if key not in self._posted):
            if self._take_removed(row.type):
                continue
            detail = f"event {row.event_id!r} of type {row.type} is in no closed bucket"
            self.report.add(FindingKind.LOST, row.client, detail, row.position)

    def _match_api_event(
        self, event_type: str, path: str, event: Event, interpreters: list[LineInterpreter]
    ) -> None:
        bits = digest_in_event_id(event["event_id"])
        key = event_type, event["event_time"], bits
        row = self._api.get(key)
        if row is None:
            return self._report_foreign(path, event)
        if key in self._posted:
            return self.report.add(
                FindingKind.DOUBLED,
                row.client,
                f"second event of this API record in {path}",
                row.position,
            )
        self._posted.add(key)
        self.report.posted += 1
        readings = (interpreter.interpret_api_event(row) for interpreter in interpreters)
        faults = [
            *self._id_faults(event, bits),
            *self._fewest_faults(event_type, event, readings, ()),
        ]
        if (event["source"], event["position"]) != (row.client, row.position):
            faults.append(f"expected source {row.client} and position {row.position}")
        return self._report_altered(row.client, row.position, path, faults)

    def _report_foreign(self, path: str, event: Event) -> None:
        if self.expectations.other_files == "ignore":
            self.report.others += 1
            self._report_altered(
                event["source"], event["position"], path, [*self._id_faults(event, None)]
            )
        else:
            detail = f"in {path}, but it matches no source file and no API record"
            self.report.add(FindingKind.UNEXPECTED, event["source"], detail, event["position"])

    def _fewest_faults(
        self,
        event_type: str,
        event: Event,
        readings: Iterable[ExpectedEvent],
        hosts: tuple[str, ...],
    ) -> list[str]:
        by_reading = []
        for expected in readings:
            by_reading.append([*self._find_faults(event_type, event, expected, hosts)])
            if not by_reading[-1]:
                break
        return min(by_reading, key=len)

    def _find_faults(
        self, event_type: str, event: Event, expected: ExpectedEvent, hosts: tuple[str, ...]
    ) -> Iterator[str]:
        if expected.type != event_type:
            yield f"its line must be {expected}, not an event of {event_type}"
            return
        known = {
            *ENVELOPE,
            *expected.fields,
            *(_DEAD_LETTER_FIELDS if event_type == DEAD_LETTERS else ()),
        }
        if event.keys() != known:
            yield f"missing or additional fields: {sorted(event.keys() ^ known)}"
            return
        earliest, latest = self.expectations.observed_ms
        if expected.time_ms is not None and expected.time_ms != event["event_time"]:
            yield f"event time {event['event_time']} ms, expected {expected.time_ms} ms"
        elif expected.time_ms is None and not earliest <= event["event_time"] <= latest:
            yield f"observed at {event['event_time']} ms, which is outside the time of delivery"
        hosts = hosts if expected.host is None else (expected.host,)
        if hosts and event["host"] not in hosts:
            yield f"host {event['host']!r}, expected {' or '.join(hosts)!r}"
        for name, value in expected.fields.items():
            if not equal_values(event[name], value):
                yield f"field {name} is {_abbreviate(event[name])}, expected {_abbreviate(value)}"
        if event_type == DEAD_LETTERS:
            detail = event["detail"]
            if not 0 < len(detail) <= _DETAIL_CHARS_MAX or expected.detail not in detail:
                yield f"its detail {detail!r} does not contain {expected.detail!r}"

    def _id_faults(self, event: Event, bits: int | None) -> Iterator[str]:
        recorded_id: bytes = event["event_id"]
        expected = event_id(
            event["event_time"], digest_in_event_id(recorded_id) if bits is None else bits
        )
        if recorded_id == expected:
            self._ids.add(recorded_id)
        else:
            yield f"event id {recorded_id.hex()}, expected {expected.hex()}"

    def _range_faults(
        self, source: SourceFile, line: SourceLine, event: Event, host_id: str | None
    ) -> Iterator[str]:
        start, end, expectations = event["range_start"], event["range_end"], self.expectations
        piece = line.start, line.start + len(line.content) + (line.part != "chunk")
        if not (start <= line.start and piece[1] <= end) or (
            line.part != "lines" and (start, end) != piece
        ):
            yield f"its range, {start} to {end}, does not contain its line"
        if expectations.rules is not None and event["rules"] not in expectations.rules:
            yield f"the rules revision {event['rules']} was not in force"
        if source.expectation.source not in (None, event["declared_source"]):
            yield f"declared source {event['declared_source']}, expected {source.expectation.source}"
        if host_id is not None and event["range_id"] != self._range_id(
            host_id, source, line, event
        ):
            yield "its range id is not the digest of its range"

    def _range_id(self, host_id: str, source: SourceFile, line: SourceLine, event: Event) -> bytes:
        start, end = event["range_start"], event["range_end"]
        fields = (
            host_id,
            *_file_key(event),
            start,
            end,
            event["event_time"],
            event["rules"],
            source.expectation.zone,
            event["declared_source"],
            event["source"],
            event["host"],
            line.part,
            *source.expectation.range_settings(),
        )
        if fields not in self._ranges:
            self._ranges[fields] = range_id(fields, source.read(start, max(start, end)))
        return self._ranges[fields]

    def _report_altered(
        self, path_or_client: str, position: int, path: str, faults: list[str]
    ) -> None:
        if faults:
            self.report.add(
                FindingKind.ALTERED, path_or_client, f"in {path}: {'; '.join(faults)}", position
            )

    def _count_file(self, source: SourceFile) -> None:
        count = FileCount(path=source.name, lines=source.required_lines)
        self.report.files.append(count)
        dead_places = {
            number
            for number, path in enumerate(self._bucket_files, 1)
            if path.startswith(f"{DEAD_LETTERS}/")
        }
        dead, waived = set(), self._waived.get(source.name, ())
        for index, place in enumerate(source.found_in[: source.required_lines]):
            start = source.starts[index]
            if place == 0 and index in waived:
                count.destroyed += 1
                continue
            if place == 0 and self._is_optional_blank(source, start):
                count.blanks += 1
                continue
            if place == 0 and self._take_removed(source.type_of_line(index)):
                count.removed += 1
                continue
            by_type = self.report.type_count(source.type_of_line(index))
            by_type.expected += 1
            if place == 0:
                count.lost += 1
                by_type.lost += 1
                self.report.add(
                    FindingKind.LOST, source.name, "in no closed bucket and no dead letter", start
                )
            elif place in dead_places:
                count.dead_letters += 1
                by_type.dead_letters += 1
                # pieces are cut by the tailer, so the writer cannot record them
                if source.part_of_line(index) == "lines":
                    dead.add(start)
            else:
                count.in_buckets += 1
        if source.record is not None:
            for position in sorted(dead ^ {*source.record.broken}):
                what = (
                    "valid, but it is a dead letter"
                    if position in dead
                    else "broken, but it is not a dead letter"
                )
                self.report.add(
                    FindingKind.ALTERED,
                    source.name,
                    f"the writer recorded this line as {what}",
                    position,
                )

    def _is_optional_blank(self, source: SourceFile, start: int) -> bool:
        line = source.line_at(start)
        return self.expectations.blank_lines != "read" and line is not None and line.blank


def _file_key(event: Event) -> FileKey:
    return event["file"]["id"], event["file"]["generation"]


def _find_host_id(
    source: SourceFile, line: SourceLine, event: Event
) -> tuple[str | None, int | None]:
    # A file may have several host ids. The digest in the event id shows which one was used.
    host_id = bits = None
    for host_id in source.host_ids:
        bits = line_digest(host_id, *_file_key(event), line.start, line.content)
        if bits == digest_in_event_id(event["event_id"]):
            break
    return host_id, bits


def _abbreviate(value: object) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:80]}… ({len(text)} characters)"
