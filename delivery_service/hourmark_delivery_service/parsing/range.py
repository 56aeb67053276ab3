"""Parsing of a byte range: a pure function of the range, its bytes and its rules revision.

The function is total: each line becomes one event or one dead letter, or is blank and counted. A
retry gives the same result, byte for byte, on any instance and years later. It depends on no clock
and no configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hourmark.avro.framing import put_long
from hourmark.records import cri
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.event_id import LineIds
from hourmark.records.ranges import LINE_BYTES_MAX, ByteRange, Part, RangeId, decode_range_fields
from hourmark.records.record_start import STEP_BYTES, RecordStart, compile_record_start
from hourmark_delivery_service.message import PackedMessages
from hourmark_delivery_service.parsing import native, records
from hourmark_delivery_service.parsing.compiled import CompiledRules
from hourmark_delivery_service.parsing.lines import LineReader, PatternReader, Rfc5424Reader
from hourmark_delivery_service.parsing.messages import MessageReader
from hourmark_delivery_service.parsing.records import (
    ParsedRange,
    Parser,
    RecordOrigin,
    avro_string,
    replace_surrogates,
)
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.times.timestamps import rfc3339_us


def line_reader_for(
    byte_range: ByteRange, rules: CompiledRules, **extra_fields: str
) -> LineReader | None:
    """Return the line parser for the source format of a byte range.

    Args:
        byte_range: Byte range of a file.
        rules: Compiled rules revision (version of the declared event types and sources).
        extra_fields: Names and values of constant fields that are added to every event.

    Returns:
        The line parser, or None if the rules do not declare the source.
    """
    source = rules.sources.get(byte_range.source)
    if source is None:
        return None
    if fields := decode_range_fields(byte_range.fields) | extra_fields:
        rules = rules.with_fields(fields, source)
    if source.name not in rules.plain_sources:
        return MessageReader(byte_range, rules, source)
    return (Rfc5424Reader if source.format == "rfc5424" else PatternReader)(
        byte_range, rules, source
    )


def parse_range(byte_range: ByteRange, body: bytes, rules: CompiledRules) -> ParsedRange:
    """Parse a whole byte range of a file at once. The result depends only on the arguments.

    Args:
        byte_range: Position and metadata of the range.
        body: Bytes of the range.
        rules: Compiled rules revision (version of the declared event types) of the range.

    Returns:
        All events and dead letters (records of invalid lines), their counts, and the audit record
        with the number of events per type and hour.

    Raises:
        ValueError: If the body does not match the range, for example in its length.
    """
    return RangeParser(byte_range, body, rules).parse_all()


class RangeParser(Parser):
    """A parser for one byte range of a file, which converts its lines to events and dead letters.

    A dead letter is the record of a line that is not a valid event. If an event may span several
    lines, these lines are parsed together. The first line of a range always starts an event, so
    that the result does not depend on other ranges of the file.

    Args:
        byte_range: Position and metadata of the range.
        body: Bytes of the range.
        rules: Compiled rules revision (version of the declared event types) of the range.

    Raises:
        ValueError: If the body does not match the range (its length, or the line feed at its end),
            the observation time is after the year 8999, or `record_start` is not a valid pattern.
    """

    def __init__(self, byte_range: ByteRange, body: bytes, rules: CompiledRules) -> None:
        range_id = byte_range.range_id(body)
        ends_line = body.endswith(b"\n")
        if byte_range.ending and ends_line:
            raise ValueError(
                f"a range with the ending {byte_range.ending} has no line feed at its end, this one "
                "has"
            )
        if byte_range.part is not Part.CHUNK and not (ends_line or byte_range.ending):
            raise ValueError(
                f"a range of {byte_range.part.value} ends with a line feed, this one does not"
            )
        super().__init__(
            rules,
            _origin(byte_range, range_id),
            withholds=byte_range.source in rules.withheld_sources
            or (rules.redacts and byte_range.source not in rules.sources),  # mistyped, perhaps
            kind="range",
            host_id=byte_range.host_id,
            host_name=replace_surrogates(byte_range.host_name),
            file_id=byte_range.file_id,
            generation=byte_range.generation,
            source=replace_surrogates(byte_range.source),
            path=replace_surrogates(byte_range.path),
        )
        self._range = byte_range
        self._body = body + b"\n" if byte_range.ending else body
        self._starts = (
            compile_record_start(byte_range.record_start) if byte_range.record_start else None
        )
        self.joins_lines = self._starts is not None or byte_range.format == "cri"
        self._reader = line_reader_for(byte_range, rules)
        self._ids = LineIds(byte_range.host_id, byte_range.file_id, byte_range.generation)
        self._native = self._open_native(rules)

    def _read(self) -> Iterator[int]:
        if self._range.part is not Part.LINES:
            raw = (
                self._body.removesuffix(b"\n")
                if self._range.part is Part.LAST_CHUNK
                else self._body
            )
            self._refuse(
                Rejected(
                    DeadLetterReason.LINE_TOO_LONG,
                    f"{self._range.part.value} of a line over {LINE_BYTES_MAX} bytes",
                ),
                raw,
                0,
            )
            return
        if self._starts is not None:
            yield from self._read_records(self._starts)
            return
        if self._range.format == "cri":
            yield from self._read_cri()
            return
        at = 0
        while at < len(self._body):
            if self._native is not None:
                end, sure = self._read_native(at)
                if end > at:
                    yield end - at
                    at = end
                if sure:
                    continue
            at = self._after_blanks(self._body, at)
            if at == len(self._body):
                return
            end = self._body.index(b"\n", at)
            self._line(self._body[at:end], at)
            yield end + 1 - at
            at = end + 1

    def _read_records(self, starts: RecordStart) -> Iterator[int]:
        at = seen = 0
        for found in starts.steps(self._body, self._body.index(b"\n") + 1, len(self._body)):
            if found is not None:
                self._record(at, found)
                at = found
                yield at - seen
                seen = at
            else:  # a long record: the search continues
                yield STEP_BYTES
        self._record(at, len(self._body))
        yield len(self._body) - seen

    def _read_cri(self) -> Iterator[int]:
        # A container log line without a time has the runtime's, and each event has the field
        # `stream`.
        at = 0
        readers = {
            stream: line_reader_for(self._range, self._rules, stream=stream.decode())
            for stream in cri.STREAMS
        }
        for end, record in cri.split_records(self._body):
            if record is None:
                pass
            elif self._is_blank(record.text):
                self.blanks += 1
            else:
                self._cri_record(record, readers.get(record.stream))
            yield end - at
            at = end

    def _cri_record(self, record: cri.CriRecord, reader: LineReader | None) -> None:
        time_us = rfc3339_us(record.time)
        if not record.stream:
            self._refuse(
                Rejected(DeadLetterReason.NOT_CRI, "the line is not of the form of container logs"),
                record.text,
                record.at,
            )
        elif time_us is None or time_us < 0:
            detail = f"its runtime says {record.time.decode('ascii')}, which is no time of an event"
            self._refuse(Rejected(DeadLetterReason.BAD_TIMESTAMP, detail), record.text, record.at)
        else:
            self._reader = reader
            if reader is not None:
                reader.default_time_ms = time_us // 1000
            self._line(record.text, record.at)

    def _record(self, at: int, end: int) -> None:
        record = self._body[at : end - 1]
        if self._is_blank(record):
            self.blanks += 1
        else:
            self._line(record, at)

    def _is_blank(self, record: bytes) -> bool:
        return self._rules.parser.counts_blanks and not record.strip(b"\r\n")

    def _open_native(self, rules: CompiledRules) -> Any:
        alone = self._reader is None or bool(self._range.extras)
        source = None if alone else rules.native_source(self._range.source)
        if native.MODULE is None or source is None:
            return None
        origin, observed_at_ms = self._origin, self._range.observed_at_ms
        earliest_ms = max(0, observed_at_ms - rules.parsing.lateness_seconds * 1000)
        latest_ms = min(observed_at_ms + rules.parsing.future_seconds * 1000, records.TIME_MS_END)
        shared = (origin.host, origin.source_and_file, self._ids.prefix, bytes(origin.range_id))
        times = (observed_at_ms, earliest_ms, latest_ms, rules.parsing.bucket_seconds)
        return native.MODULE.range(
            source, (*shared, *times, self._range.start, LINE_BYTES_MAX, records.EVENT_BYTES_MAX)
        )

    def _read_native(self, at: int) -> tuple[int, bool]:
        assert native.MODULE is not None
        end, sure, packs, ids, places, hashes, size = native.MODULE.read(
            self._native, self._body, at, native.LINES_MAX, native.BYTES_MAX
        )
        for number, keys, values, ends in packs:
            event_type, some = self._rules.numbered[number], PackedMessages(keys, values, ends)
            self._pending.add_messages(event_type, some, 0)
            self.events[event_type] += len(some)
        self._pending.size += size
        self._promised.extend(ids, places, hashes)
        return end, sure

    def _line(self, line: bytes, at: int) -> None:
        position = self._range.start + at
        try:
            if not line:
                raise Rejected(DeadLetterReason.EMPTY_LINE, "the line has no bytes")
            if len(line) > LINE_BYTES_MAX:
                raise Rejected(
                    DeadLetterReason.LINE_TOO_LONG, f"the line has more than {LINE_BYTES_MAX} bytes"
                )
            if self._reader is None:
                raise Rejected(
                    DeadLetterReason.UNKNOWN_SOURCE,
                    f"the rules declare no source {replace_surrogates(self._range.source)}",
                )
            event = self._reader.read(line)
            self._event(event, self._ids.make(event.time_ms, position, line), position)
        except Rejected as refusal:
            self._refuse(refusal, line, at)

    def _refuse(self, refusal: Rejected, raw: bytes, at: int) -> None:
        position = self._range.start + at
        self._dead_letter(
            refusal, raw, self._ids.make(self._range.observed_at_ms, position, raw), position
        )


def _origin(byte_range: ByteRange, range_id: RangeId) -> RecordOrigin:
    file = bytearray(avro_string(byte_range.path))
    file += b"\x02" + avro_string(byte_range.file_id)  # the union's branch 1
    put_long(byte_range.generation, file)
    return RecordOrigin(
        range_id=range_id,
        observed_at_ms=byte_range.observed_at_ms,
        host=avro_string(byte_range.host_name),
        source_and_file=bytes(file),
        declared_source=replace_surrogates(byte_range.source),
        start=byte_range.start,
        end=byte_range.end,
    )
