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
_MARK: Final = r"(?:\xef\xbb\xbf)?"  # the byte order mark of UTF-8
_ALWAYS: Final = EventTimeLimits(
    lateness_seconds=10**10
)  # the age of a sample does not matter for its format


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One possible format of a log file, to be tried on sample lines.

    A format consists of an event type, declared in the type file, and settings of the source.

    Attributes:
        form: Description for users, such as `JSON lines`.
        line: Table `[line]` of the type file, which defines how lines are parsed; empty for the
            built-in type `syslog`.
        fields: Tables `[[fields]]` of the type file, one for each Avro field.
        format: Format of the source, `free` or `syslog`.
        record_start: Regular expression for the first line of each multi-line record; empty if
            every line is a record.
        catches_all: Whether lines that do not match become events with the whole line as message.
        zone: IANA time zone that abbreviations in timestamps refer to; empty for the user's zone.
        container_log: Whether the file is a Kubernetes container log.
        has_header: Whether the columns are named by a header row, which is no event.
        doubts: Uncertain interpretations of timestamps, as sentences for users.
        notes: Further information, as sentences for users.
        shares: Maps names of fields to the fraction of the records in which a value for them was
            found. The pattern must find these values, too. Empty if this is not known.
    """

    form: str
    line: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fields: tuple[Mapping[str, Any], ...] = ()
    format: str = "free"
    record_start: str = ""
    catches_all: bool = False
    zone: str = ""
    container_log: bool = False
    has_header: bool = False
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def type_name(self, name: str) -> str:
        """Return the name of the event type that parses the lines of a source in this format.

        Args:
            name: Name of the source.

        Returns:
            `syslog` if the built-in type parses the lines, otherwise `name`.
        """
        return name if self.line else SYSLOG.name

    def type_file(self, name: str) -> dict[str, Any]:
        """Return the content of the type file that declares an event type of this format.

        Args:
            name: Name of the type.

        Returns:
            A dict with the keys `name`, `line` and `fields`, which the caller writes as TOML.
        """
        return {
            "name": name,
            "line": dict(self.line),
            "fields": [dict(field) for field in self.fields],
        }

    def source(self, name: str) -> dict[str, Any]:
        """Return the entry for `sources.toml` that declares a source of this format.

        Args:
            name: Name of the source and of its type.

        Returns:
            A dict with the keys `name`, `format` and `types`, and also `catch_all` if lines that do
            not match the format become events.
        """
        catch_all = {"catch_all": name} if self.catches_all else {}
        return {"name": name, "format": self.format, "types": [self.type_name(name)], **catch_all}

    @property
    def without_time(self) -> Candidate:
        """Return a copy that uses the time at which a line is read as its event time.

        Use the copy if the time in the lines is ambiguous. The text of the time is kept in the
        field `log_time`.
        """
        line = {
            name: value
            for name, value in self.line.items()
            if name not in ("time_field", "time_format")
        }
        key = self.line.get("time_field", "time")
        named: dict[str, Any] = {}
        if "pattern" in line:
            named["pattern"] = line["pattern"].replace(f"(?P<{key}>", "(?P<log_time>")
        if "columns" in line:
            named["columns"] = ["log_time" if name == key else name for name in line["columns"]]
        if not named:  # a key of an object stays as it is
            return dataclasses.replace(self, line={**line, "time": "observed"}, doubts=())
        field = {"name": "log_time", "type": ["null", "string"]}
        return dataclasses.replace(
            self,
            form=f"{self.form}, which is kept as text",
            line={**line, **named, "time": "observed"},
            fields=(field, *self.fields),
            doubts=(),
        )

    @property
    def with_mark(self) -> Candidate:
        """Return a copy whose patterns allow a byte order mark (BOM) at the start of the file.

        Returns the same object if the format has no pattern, as for JSON lines.
        """
        pattern = self.line.get("pattern")
        if pattern is None:
            return self
        options = "(?s)" if pattern.startswith("(?s)") else ""
        marked = f"{options}{_MARK}{pattern.removeprefix(options)}"
        start = self.record_start
        if start.startswith("^"):
            start = f"^{_MARK}{start.removeprefix('^')}"
        return dataclasses.replace(self, line={**self.line, "pattern": marked}, record_start=start)

    @property
    def without_catch_all(self) -> Candidate:
        """Return a copy in which `catches_all` is False.

        Lines that do not match the format then become dead letters (lines that no event type can
        parse), so they can be counted.
        """
        return dataclasses.replace(self, catches_all=False)

    def to_declarations(self, name: str) -> Declarations:
        """Return declarations for parsing sample lines in this format.

        The declarations contain one event type and one source, and accept lines of any age.

        Args:
            name: Name of the source and of its type.

        Raises:
            ValueError: The declaration or one of its regular expressions is invalid.
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
