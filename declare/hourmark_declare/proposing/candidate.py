"""What the lines of a file may be: a declaration that is still to be tried on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from hourmark.config.groups import EventTimeLimits
from hourmark.records.record_start import compile_record_start
from hourmark.rules.event_types import DEAD_LETTERS, SYSLOG, Declarations, EventType, Source
from hourmark.rules.line_rule import DECLARED

MESSAGE: Final = "message"  # the field of what is left of a line, and of a line that did not fit
_ALWAYS: Final = EventTimeLimits(
    lateness_seconds=10**10
)  # how old a sample is says nothing of its form


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One form. `line` and `fields`: as the type's file has them; empty where the built-in type
    `syslog` takes the lines.
    """

    form: str
    line: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fields: tuple[Mapping[str, Any], ...] = ()
    format: str = "free"
    record_start: str = ""
    catches_all: bool = False

    def type_name(self, name: str) -> str:
        """Of the source that is called so."""
        return name if self.line else SYSLOG.name

    def type_file(self, name: str) -> dict[str, Any]:
        """What its file declares."""
        return {
            "name": name,
            "line": dict(self.line),
            "fields": [dict(field) for field in self.fields],
        }

    def source(self, name: str) -> dict[str, Any]:
        """What `sources.toml` says of it."""
        catch_all = {"catch_all": name} if self.catches_all else {}
        return {"name": name, "format": self.format, "types": [self.type_name(name)], **catch_all}

    @property
    def alone(self) -> Candidate:
        """Without what catches lines of other forms."""
        return dataclasses.replace(self, catches_all=False)

    def declared(self, name: str) -> Declarations:
        """Ready to be tried, on lines however old.

        ValueError where it is no declaration, or a pattern is none.
        """
        if self.record_start:
            compile_record_start(self.record_start)
        own = (
            EventType.model_validate(self.type_file(name), context=DECLARED)
            if self.line
            else SYSLOG
        )
        return Declarations(
            [own, DEAD_LETTERS],
            [Source.model_validate(self.source(name), context=DECLARED)],
            _ALWAYS,
        )
