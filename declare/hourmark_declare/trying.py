"""What would become of sample lines: the service's own parsing, on this machine, without any
server.
"""

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
class Tried:
    """One line. `type` None: it makes no record. `reason` and `detail`: of a dead letter; `fields`:
    of an event, as JSON.
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
        """Neither a dead letter nor nothing."""
        return self.type is not None and self.reason is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where and when the lines would have been read."""

    observed_at_ms: int
    zone: str
    host: str
    record_start: str = ""
    """of the tailer's source; empty: each line is a record"""


def source_of(declared: Declarations, source: str | None, event_type: str | None) -> Source:
    """The source to be tried: the one that is named, or that carries the type, or the only one.

    UsageError if it is none.
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
            "say which source the lines are of, --source; declared are: "
            f"{', '.join(named) or 'none'}"
        )
    return declared.sources[0]


class Trial:
    """Lines parsed under one revision of the rules, as the service would."""

    def __init__(self, rules: Rules) -> None:
        self._rules, self._compiled = rules, CompiledRules(rules)
        self._data = {v.schema_id: Datum(v.schema) for v in rules.types.values()}

    @classmethod
    def of(cls, declared: Declarations) -> Trial:
        """Under what these declarations would be, once applied."""
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

    def of_lines(self, source: str, lines: Iterable[bytes], place: Place) -> Iterator[Tried]:
        """What becomes of each line of a file of the source, its LF taken off."""
        start = 0
        for number, line in enumerate(lines, 1):
            yield from self.of_line(source, line, place, number, start)
            start += len(line) + 1

    def of_records(self, source: str, lines: Iterable[bytes], place: Place) -> Iterator[Tried]:
        """The same of records that may be of several lines, numbered as records."""
        body = b"".join(line + b"\n" for line in lines)
        for number, tried in enumerate(self._of_body(source, body, place, 0) if body else (), 1):
            yield dataclasses.replace(tried, line=number)

    def of_line(
        self, source: str, line: bytes, place: Place, number: int = 1, start: int = 0
    ) -> Iterator[Tried]:
        """What becomes of this one: of a line over the limits, several."""
        for tried in self._of_body(source, line + b"\n", place, start):
            yield dataclasses.replace(tried, line=number)

    def _of_body(self, source: str, body: bytes, place: Place, start: int) -> Iterator[Tried]:
        parsed = parse_range(
            _range(place, source, self._rules.id, start, len(body)), body, self._compiled
        )
        if not parsed.records:
            yield Tried(line=1, type=None)
        for record in parsed.records:
            schema_id, datum = unframe(record.value)
            yield _tried(1, record.event_type, self._data[schema_id].decode(datum))


def _range(place: Place, source: str, rules: str, start: int, size: int) -> ByteRange:
    return ByteRange(
        host_id=_NOBODY,
        file_id=_NOBODY,
        generation=0,
        start=start,
        end=start + size,
        observed_at_ms=place.observed_at_ms,
        rules=rules,
        zone=place.zone,
        source=source,
        path="sample",
        host_name=place.host,
        record_start=place.record_start,
    )


def _tried(number: int, event_type: str, row: dict[str, Any]) -> Tried:
    if event_type == DEAD_LETTERS:
        return Tried(line=number, type=event_type, reason=row["reason"], detail=row["detail"])
    own = {name: to_json_value(value) for name, value in row.items() if name not in ENVELOPE_NAMES}
    return Tried(
        line=number,
        type=event_type,
        time=str(to_json_value(row["event_time"])),
        host=row["host"],
        fields=own,
    )
