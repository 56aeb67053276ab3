"""Parses sample lines on this machine as the delivery service would, without a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Final

from hourmark.avro.datum import Datum
from hourmark.avro.framing import ENVELOPE_NAMES, unframe
from hourmark.config.groups import ParsingSettings
from hourmark.errors import UsageError
from hourmark.printing import to_json_value
from hourmark.records.dead_letters import TYPE as DEAD_LETTERS
from hourmark.records.ranges import ByteRange
from hourmark.rules.event_types import Declarations, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, parse_range

_NOBODY: Final = "0" * 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineResult:
    """Result of parsing one sample line.

    Attributes:
        line: Line or record number, from 1.
        type: Type of the event or dead letter; None if the line produces no record.
        time: Event time, ISO 8601 in UTC.
        host: Host of the event.
        fields: Fields of the event, JSON-serializable.
        reason: Reason of a dead letter; None for an event.
        detail: Details of a dead letter.
    """

    line: int
    type: str | None
    time: str | None = None
    host: str | None = None
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    reason: str | None = None
    detail: str | None = None

    @property
    def is_event(self) -> bool:
        """Return whether the line becomes an event; False for dead letters and blank lines."""
        return self.type is not None and self.reason is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadContext:
    """Context in which sample lines would have been read.

    Attributes:
        observed_at_ms: Time of reading, Unix milliseconds.
        zone: IANA time zone for timestamps without one.
        host: Host name.
        record_start: Pattern that begins a record of several lines; empty if each line is a record.
    """

    observed_at_ms: int
    zone: str
    host: str
    record_start: str = ""
    """of the tailer's source; empty: each line is a record"""


def select_source(declared: Declarations, source: str | None, event_type: str | None) -> Source:
    """Return the declared source to try: by name, by type, or the only one.

    Args:
        declared: Declarations.
        source: Name of the source; None to select by type.
        event_type: Type that the source carries, tried alone; None selects the only source.

    Raises:
        UsageError: No such source is declared, no source carries the type, or there are several.
    """
    named = {s.name: s for s in declared.sources}
    if source is not None:
        if source not in named:
            raise UsageError(
                f"--source {source}: no such source is declared; known: "
                f"{', '.join(named) or 'none'}"
            )
        return named[source]
    if event_type is not None:
        carriers = [s for s in declared.sources if event_type in s.types]
        if not carriers:
            raise UsageError(
                f"--type {event_type}: no source carries it; name it in a source of sources.toml"
            )
        return carriers[0].model_copy(update={"types": [event_type], "catch_all": None})
    if len(named) != 1:
        raise UsageError(
            f"name the source of the lines, --source; declared are: {', '.join(named) or 'none'}"
        )
    return declared.sources[0]


class LineTrial:
    """Parser of sample lines under one revision of the rules, as in the delivery service.

    Compiles the rules once; an instance can parse any number of lines.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules, self._compiled = rules, CompiledRules(rules)
        self._data = {v.schema_id: Datum(v.schema) for v in rules.types.values()}

    @classmethod
    def from_declarations(cls, declared: Declarations) -> LineTrial:
        """Create a trial under the rules that these declarations would become once applied."""
        versions = {
            t.name: TypeVersion(t, schema_id) for schema_id, t in enumerate(declared.types, 1)
        }
        limits = ParsingSettings(**declared.limits.model_dump())
        return cls(
            Rules(
                sequence=1,
                types=versions,
                sources={s.name: s for s in declared.sources},
                parsing=limits,
            )
        )

    def parse_lines(
        self, source: str, lines: Iterable[bytes], context: ReadContext
    ) -> Iterator[LineResult]:
        """Parse each line of a file and yield its results.

        Args:
            source: Name of the declared source.
            lines: Lines without their line feeds.
            context: Host, time and time zone of reading.

        Yields:
            At least one result for each line, in order; a line that produces no record has type
            None.
        """
        start = 0
        for number, line in enumerate(lines, 1):
            yield from self.parse_line(source, line, context, number, start)
            start += len(line) + 1

    def parse_records(
        self, source: str, lines: Iterable[bytes], context: ReadContext
    ) -> Iterator[LineResult]:
        """Parse lines that form records of one or more lines, and yield a result for each record.

        Results are numbered by record. The pattern of a record's first line is
        `context.record_start`.

        Args:
            source: Name of the declared source.
            lines: Lines without their line feeds.
            context: Host, time, time zone and record start.
        """
        body = b"".join(line + b"\n" for line in lines)
        for number, tried in enumerate(
            self._parse_body(source, body, context, 0) if body else (), 1
        ):
            yield dataclasses.replace(tried, line=number)

    def parse_line(
        self, source: str, line: bytes, context: ReadContext, number: int = 1, start: int = 0
    ) -> Iterator[LineResult]:
        """Parse one line and yield its results, several if it exceeds the limits.

        Args:
            source: Name of the declared source.
            line: Line without its line feed.
            context: Host, time and time zone of reading.
            number: Line number in the results.
            start: Byte offset of the line in its file.
        """
        for tried in self._parse_body(source, line + b"\n", context, start):
            yield dataclasses.replace(tried, line=number)

    def _parse_body(
        self, source: str, body: bytes, context: ReadContext, start: int
    ) -> Iterator[LineResult]:
        parsed = parse_range(
            _range(context, source, self._rules.id, start, len(body)), body, self._compiled
        )
        if not parsed.records:
            yield LineResult(line=1, type=None)
        for record in parsed.records:
            schema_id, datum = unframe(record.value)
            yield _tried(1, record.event_type, self._data[schema_id].decode(datum))


def _range(context: ReadContext, source: str, rules: str, start: int, size: int) -> ByteRange:
    return ByteRange(
        host_id=_NOBODY,
        file_id=_NOBODY,
        generation=0,
        start=start,
        end=start + size,
        observed_at_ms=context.observed_at_ms,
        rules=rules,
        zone=context.zone,
        source=source,
        path="sample",
        host_name=context.host,
        record_start=context.record_start,
    )


def _tried(number: int, event_type: str, row: dict[str, Any]) -> LineResult:
    if event_type == DEAD_LETTERS:
        return LineResult(line=number, type=event_type, reason=row["reason"], detail=row["detail"])
    own = {name: to_json_value(value) for name, value in row.items() if name not in ENVELOPE_NAMES}
    return LineResult(
        line=number,
        type=event_type,
        time=str(to_json_value(row["event_time"])),
        host=row["host"],
        fields=own,
    )
