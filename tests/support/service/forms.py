"""One type and one source, compiled, for tests of a form of lines."""

from __future__ import annotations

from typing import Any

from tests.support.service.examples import NOW_MS, decoded, range_of

from hourmark.config.groups import ParsingSettings
from hourmark.rules.event_types import DEAD_LETTERS, SYSLOG, EventType, LineRule, Source
from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.parsing import CompiledRules, ParsedRange, parse_range

FREE_TEXT = {"type": "map", "values": "string"}


class Tried:
    """What becomes of lines of one source."""

    def __init__(
        self,
        types: list[EventType],
        source: Source,
        parsing: ParsingSettings = ParsingSettings(),  # noqa: B008
    ) -> None:  # frozen
        versions = {
            t.name: TypeVersion(t, schema_id)
            for schema_id, t in enumerate((*types, DEAD_LETTERS), 1)
        }
        self.rules = Rules(
            sequence=1, types=versions, sources={source.name: source}, parsing=parsing
        )
        self.compiled = CompiledRules(self.rules)
        self.source = source.name

    def parsed(self, body: bytes, **more: Any) -> ParsedRange:
        """Of whole lines, each with its LF."""
        return parse_range(
            range_of(body, more.pop("source", self.source), **more), body, self.compiled
        )

    def one(self, line: bytes, **more: Any) -> dict[str, Any]:
        """The one record of a line (without its LF), decoded, with its `type`."""
        (record,) = self.parsed(line + b"\n", **more).records
        return {"type": record.event_type, **decoded(record, self.rules)}

    def reason(self, line: bytes, **more: Any) -> str | None:
        """Of its dead letter; None if it is an event."""
        reason: str | None = self.one(line, **more).get("reason")
        return reason


def of_rule(fields: list[dict[str, Any]], source_format: str = "free", /, **rule: Any) -> Tried:
    """A type with these fields and this rule, in a source of this format."""
    declared = EventType(name="t", fields=fields, line=LineRule(**rule))
    return Tried([declared], Source(name="s", format=source_format, types=["t"]))


SYSTEM = Tried([SYSLOG], Source(name="system", format="syslog", types=["syslog"]))
LOGFMT = of_rule(
    [
        {"name": "n", "type": ["null", "long"]},
        {"name": "msg", "type": "string"},
        {"name": "rest", "type": FREE_TEXT},
    ],
    payload="logfmt",
    time_field="t",
    time_format="unix",
    host_field="host",
    unknown="keep",
    unknown_field="rest",
)
JSON = of_rule(
    [
        {"name": "n", "type": "long"},
        {"name": "ok", "type": "boolean", "default": False},
        {"name": "rest", "type": FREE_TEXT},
    ],
    payload="json",
    time_field="ts",
    host_field="host",
    unknown="keep",
    unknown_field="rest",
    coerce=["n"],
)
COLUMNS = of_rule(
    [{"name": "a", "type": "string"}, {"name": "b", "type": ["null", "double"]}],
    payload="tsv",
    columns=["when", "-", "a", "b"],
    time_field="when",
    time_format="unix-ms",
    null_text="-",
)
NOW_S = NOW_MS // 1000
