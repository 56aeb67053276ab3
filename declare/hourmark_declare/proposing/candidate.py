"""Candidate formats of a log file: declarations that have not been tried on its lines yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from hourmark.config.groups import EventTimeLimits
from hourmark.records.record_start import compile_record_start
from hourmark.rules.event_types import DEAD_LETTERS, SYSLOG, Declarations, EventType, Source
from hourmark.rules.line_rule import DECLARED

MESSAGE: Final = "message"  # field for the rest of a line, or for a line that does not match
_ALWAYS: Final = EventTimeLimits(
    lateness_seconds=10**10
)  # the age of a sample does not matter for its format


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """Possible format of a log file, as a declaration to try.

    Attributes:
        form: Description for users, such as `JSON lines`.
        line: Table `[line]` of the type file; empty if the built-in type `syslog` takes the lines.
        fields: Tables `[[fields]]` of the type file.
        format: Format of the source, `free` or `syslog`.
        record_start: Pattern that begins a record of several lines; empty if each line is a record.
        catches_all: Whether lines that do not match become events with the whole line as message.
    """

    form: str
    line: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fields: tuple[Mapping[str, Any], ...] = ()
    format: str = "free"
    record_start: str = ""
    catches_all: bool = False

    def type_name(self, name: str) -> str:
        """Return the type name for a source name, which is `syslog` for the built-in type."""
        return name if self.line else SYSLOG.name

    def type_file(self, name: str) -> dict[str, Any]:
        """Return the content of the type file.

        Args:
            name: Name of the type.
        """
        return {
            "name": name,
            "line": dict(self.line),
            "fields": [dict(field) for field in self.fields],
        }

    def source(self, name: str) -> dict[str, Any]:
        """Return the entry of `sources.toml` for a source of this format.

        Args:
            name: Name of the source.
        """
        catch_all = {"catch_all": name} if self.catches_all else {}
        return {"name": name, "format": self.format, "types": [self.type_name(name)], **catch_all}

    @property
    def without_catch_all(self) -> Candidate:
        """Return a copy that does not catch lines of other formats."""
        return dataclasses.replace(self, catches_all=False)

    def to_declarations(self, name: str) -> Declarations:
        """Return declarations with this type and its source, which accept lines of any age.

        Args:
            name: Name of the source and its type.

        Raises:
            ValueError: The declaration or one of its patterns is invalid.
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
