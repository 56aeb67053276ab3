"""Events matched with the lines they claim by (file id, generation, position)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from infra.judge.buckets import DEAD_LETTERS
from infra.judge.content import content_fault, header_fault
from infra.judge.expectations import Expectations
from infra.judge.identity import digest_bits, id_fault
from infra.judge.ids import IdSet
from infra.judge.report import FileCount, Kind, Report
from infra.judge.sources import Line, SourceFile

Event = Mapping[str, Any]
_TOO_LONG: Final = "line_too_long"  # a dead letter of this reason holds a piece of a line


class Matcher:
    """Takes all events once, then settles with the lines that none of them claimed."""

    def __init__(self, told: Expectations, sources: dict[tuple[str, int], SourceFile], report: Report) -> None:
        self._told = told
        self._sources = sources
        self._report = report
        self._places: list[str] = []  # bucket files, by the number that SourceFile.where holds, less one
        self._ids = IdSet()
        self._pieces: dict[tuple[Path, int], list[tuple[int, int]]] = {}  # of over-long lines: their spans

    def take(self, event_type: str, path: str, event: Event, time_ms: int) -> None:
        """An event of the bucket file `path`."""
        position, file = event["position"], event["file"]
        source = None if file is None else self._sources.get((file["id"], file["generation"]))
        if source is None:
            return self._foreign(path, event)
        line = source.line_at(position)
        if line is None:
            return self._beyond(source, path, position)
        if event_type == DEAD_LETTERS and event["reason"] == _TOO_LONG:
            return self._piece(source, line, path, event, time_ms)
        if line.start != position:
            return self._report.add(Kind.UNEXPECTED, str(source.path), position, f"in {path}, but no line starts there")
        if (before := source.where[line.index]) != 0:
            detail = f"in {path} again, after {self._places[before - 1]}"
            return self._report.add(Kind.DOUBLED, str(source.path), position, detail)
        source.where[line.index] = self._place(path)
        fault = self._fault(source, line, event_type, event, time_ms)
        fault = fault or self._identity_fault(source, event, line.content, time_ms)
        if fault is not None:
            self._report.add(Kind.ALTERED, str(source.path), position, f"in {path}: {fault}")
        return None

    def settle(self) -> None:
        """After the last event: ids that occur twice, and lines that are nowhere; counts lines by file and type."""
        for event_id in self._ids.twice():
            self._report.add(Kind.DOUBLED, self._told.root, None, f"more than one event has the id {event_id.hex()}")
        for source in self._sources.values():
            self._settle_file(source)

    def _foreign(self, path: str, event: Event) -> None:
        if self._told.other_files == "ignore":
            self._report.others += 1
        else:
            detail = f"in {path}, but that file is not among the sources"
            self._report.add(Kind.UNEXPECTED, event["source"], event["position"], detail)

    def _beyond(self, source: SourceFile, path: str, position: int) -> None:
        if source.told.size is not None and source.terminated_at(position):
            self._report.beyond += 1
        else:
            self._report.add(Kind.UNEXPECTED, str(source.path), position, f"in {path}, but no terminated line is there")

    def _fault(self, source: SourceFile, line: Line, event_type: str, event: Event, time_ms: int) -> str | None:
        if event_type == DEAD_LETTERS:
            return self._host_fault(event) or (None if event["raw"] == line.content else "raw is not the line")
        rule = self._told.types.get(event_type)
        if rule is None:
            return f"nothing is known of the type {event_type}, so its content cannot be compared"
        if source.told.form == "rfc5424":
            fault = header_fault(event_type, event["host"], time_ms, line.content)
        elif source.told.type not in (None, event_type):
            fault = f"the event is of type {event_type}"
        else:
            fault = self._host_fault(event)
        return fault or content_fault(rule, event, line.content)

    def _host_fault(self, event: Event) -> str | None:
        return None if self._told.host in (None, event["host"]) else f"the event's host is {event['host']!r}"

    def _identity_fault(self, source: SourceFile, event: Event, content: bytes, time_ms: int) -> str | None:
        bits = None
        if self._told.host_id is not None:
            bits = digest_bits(self._told.host_id, source.id, source.told.generation, event["position"], content)
        fault = id_fault(event["event_id"], time_ms, bits)
        if fault is None:
            self._ids.add(event["event_id"])
        return fault

    def _piece(self, source: SourceFile, line: Line, path: str, event: Event, time_ms: int) -> None:
        raw, position = event["raw"], event["position"]
        start = position - line.start
        if line.content[start : start + len(raw)] != raw:
            return self._report.add(Kind.ALTERED, str(source.path), position, f"in {path}: raw is not that piece of the line")
        self._pieces.setdefault((source.path, line.index), []).append((start, start + len(raw)))
        source.where[line.index] = self._place(path)
        fault = self._identity_fault(source, event, raw, time_ms)
        if fault is not None:
            self._report.add(Kind.ALTERED, str(source.path), position, f"in {path}: {fault}")
        return None

    def _place(self, path: str) -> int:
        if not self._places or self._places[-1] != path:
            self._places.append(path)
        return len(self._places)

    def _settle_file(self, source: SourceFile) -> None:
        count = FileCount(str(source.path), len(source))
        self._report.files.append(count)
        dead_places = {number for number, path in enumerate(self._places, 1) if path.startswith(f"{DEAD_LETTERS}/")}
        for (path, index), spans in self._pieces.items():
            if path == source.path:
                self._settle_pieces(source, index, sorted(spans))
        for index, place in enumerate(source.where):
            by_type = self._report.of_type(source.type_of(index))
            by_type.expected += 1
            if place == 0:
                count.lost += 1
                by_type.lost += 1
                detail = f"a line of {source.length(index)} bytes is in no closed bucket and no dead letter"
                self._report.add(Kind.LOST, str(source.path), source.start(index), detail)
            elif place in dead_places:
                count.dead_letters += 1
                by_type.dead_letters += 1
            else:
                count.in_buckets += 1

    def _settle_pieces(self, source: SourceFile, index: int, spans: list[tuple[int, int]]) -> None:
        """Pieces must make up the whole line, side by side; a gap makes it lost."""
        reached = 0
        for start, end in spans:
            position = source.start(index) + start
            if start < reached:
                self._report.add(Kind.DOUBLED, str(source.path), position, "pieces of an over-long line overlap")
            elif start > reached:
                break
            reached = max(reached, end)
        if reached != source.length(index):
            source.where[index] = 0
