"""Parses sample lines on this machine as the delivery service would, without a server."""

from __future__ import annotations

import dataclasses
import datetime as dt
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


def to_unix_ms(time: str) -> int:
    """Convert an event time of a `LineResult` to Unix milliseconds.

    Args:
        time: The time in ISO 8601 with a time zone.
    """
    return int(dt.datetime.fromisoformat(time).timestamp() * 1000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineResult:
    """The result of parsing one sample line.

    A line becomes an event or, if no event type can parse it, a dead letter. A blank line becomes
    neither.

    Attributes:
        line: Number of the line (or multi-line record) in the sample, starting at 1.
        type: Name of the event type; `dead-letters` for a dead letter; None for a blank line.
        time: Event time in ISO 8601 (UTC); None unless the result is an event.
        host: Host of the event; None unless the result is an event.
        fields: Names and JSON-serializable values of the declared fields; empty unless the result
            is an event.
        reason: Reason code of the dead letter, such as `no_timestamp`; None if the result is not a
            dead letter.
        detail: Explanation of the reason; None if the result is not a dead letter.
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
        """Return whether the line becomes an event.

        Returns:
            False for a dead letter and for a blank line.
        """
        return self.type is not None and self.reason is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadContext:
    """The properties of a log file that affect how sample lines are parsed.

    In production, the tailer (the component that reads log files) provides them.

    Attributes:
        observed_at_ms: Time at which the lines are read, in Unix milliseconds.
        zone: IANA time zone of timestamps without a time zone.
        host: Name of the host on which the lines were written.
        record_start: Regular expression that matches the first line of each multi-line record;
            empty if every line is a record.
        format: `cri` for a Kubernetes container log; otherwise empty.
    """

    observed_at_ms: int
    zone: str
    host: str
    record_start: str = ""
    format: str = ""


def select_source(declared: Declarations, source: str | None, event_type: str | None) -> Source:
    """Select the declared source to which sample lines belong.

    Args:
        declared: Declarations of types and sources.
        source: Name of the source; None to select it by `event_type`.
        event_type: Name of a type, used only if `source` is None. The first source that lists this
            type is selected. If None, the only declared source is selected.

    Returns:
        The declared source. If it was selected by `event_type`, a copy that lists only this type.

    Raises:
        UsageError: The source is not declared, no source lists the type, or both names are None and
            the number of declared sources is not one.
    """
    named = {s.name: s for s in declared.sources}
    if source is not None:
        if source not in named:
            raise UsageError(
                f"--source {source}: unknown source; declared sources: {', '.join(named) or 'none'}"
            )
        return named[source]
    if event_type is not None:
        carriers = [s for s in declared.sources if event_type in s.types]
        if not carriers:
            raise UsageError(
                f"--type {event_type}: no source contains this type; add it to a source in "
                "sources.toml"
            )
        return carriers[0].model_copy(update={"types": [event_type], "catch_all": None})
    if len(named) != 1:
        raise UsageError(
            "specify the source of the lines with --source; declared sources: "
            f"{', '.join(named) or 'none'}"
        )
    return declared.sources[0]


class LineTrial:
    """A parser for sample lines that produces the same results as the delivery service.

    The rules (event types, sources and limits) are compiled once. The parser can then be used for
    any number of lines.

    Args:
        rules: Rules for parsing lines.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules, self._compiled = rules, CompiledRules(rules)
        self._data = {v.schema_id: Datum(v.schema) for v in rules.types.values()}

    @classmethod
    def from_declarations(cls, declared: Declarations) -> LineTrial:
        """Create a parser for declarations that have not been applied. No server is needed.

        Args:
            declared: Types, sources and limits for parsing lines.
        """
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
        """Parse the lines of one file, each as a separate record.

        Args:
            source: Name of the declared source of the lines.
            lines: Consecutive lines from the start of the file, without line feeds.
            context: Host, time and time zone of the lines.

        Yields:
            One result for each line, in order. A line that exceeds the length limit may have
            several results.
        """
        start = 0
        for number, line in enumerate(lines, 1):
            yield from self.parse_line(source, line, context, number, start)
            start += len(line) + 1

    def parse_records(
        self, source: str, lines: Iterable[bytes], context: ReadContext
    ) -> Iterator[LineResult]:
        """Parse the lines of one file as records that may consist of several lines.

        A new record starts at each line that matches `context.record_start`.

        Args:
            source: Name of the declared source of the lines.
            lines: Consecutive lines from the start of the file, without line feeds.
            context: Host, time, time zone and record pattern of the lines.

        Yields:
            One result for each record, in order. `LineResult.line` is the number of the result.
        """
        body = b"".join(line + b"\n" for line in lines)
        for number, tried in enumerate(
            self._parse_body(source, body, context, 0) if body else (), 1
        ):
            yield dataclasses.replace(tried, line=number)

    def parse_line(
        self, source: str, line: bytes, context: ReadContext, number: int = 1, start: int = 0
    ) -> Iterator[LineResult]:
        """Parse a single line.

        Args:
            source: Name of the declared source of the line.
            line: The line without its line feed.
            context: Host, time and time zone of the line.
            number: Line number to set in the results.
            start: Byte offset of the line in its file.

        Yields:
            One result, or several if the line exceeds the length limit and is split. A blank line
            has one result with type None.
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
        format=context.format,
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
