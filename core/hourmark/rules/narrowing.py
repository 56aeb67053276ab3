"""Detection of new declarations that reject lines which the current declarations accept.

Only rejections that follow from the declarations alone are detected: something that was accepted
and no longer is. Whether a changed pattern matches future lines cannot be decided; see
docs/decisions/2026-11-23-declarations-that-refuse-lines.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hourmark.errors import UsageError
from hourmark.records import dead_letters
from hourmark.rules.event_types import Declarations, EventType, LineRule, Source
from hourmark.rules.revision import Rules

_UNNAMED: Final = ("pattern", "text", "tsv")  # payloads whose lines do not hold field names


def check_refused_lines(latest: Rules | None, declared: Declarations, *, may_refuse: bool) -> None:
    """Check that new declarations do not reject lines that the current declarations accept.

    Rejected lines would be stored as dead letters instead of events. The function detects only
    rejections that follow from the declarations themselves, such as a removed field.

    Args:
        latest: The current rules revision (the published declarations). None if nothing has been
            published yet, in which case every declaration is permitted.
        declared: The new declarations.
        may_refuse: Whether such a change is allowed. If true, nothing is checked.

    Raises:
        UsageError: Lines would become dead letters. The message contains the types, sources and
            fields.
    """
    refused = [] if latest is None or may_refuse else [*_refused(latest, declared)]
    if refused:
        raise UsageError(
            "lines that are events now would become dead letters: "
            f"{'; '.join(refused[:10])}{f'; and {len(refused) - 10} more' if len(refused) > 10 else ''}. "
            "Nothing was changed. Change the declaration so that it accepts them or, if no "
            "program writes such lines any more, confirm with --refuse-lines"
        )


def _refused(latest: Rules, declared: Declarations) -> Iterator[str]:
    for new in declared.types:
        if new.name != dead_letters.TYPE and (old := latest.types.get(new.name)) is not None:
            yield from (
                f"{new.name}: {what}" for what in _of_type(old.declaration, old.schema, new)
            )
    for source in declared.sources:
        if (before := latest.sources.get(source.name)) is not None:
            yield from (f"source {source.name}: {what}" for what in _of_source(before, source))


def _of_type(old: EventType, old_schema: Mapping[str, Any], new: EventType) -> Iterator[str]:
    names_in_lines = old.line.payload not in _UNNAMED or new.line.payload not in _UNNAMED
    older_name = {} if names_in_lines else _renamed(old.fields, new.fields)
    yield from _Comparison(older_name).of(old_schema, new.schema())
    yield from _of_lines(old.line, new.line)
    if names_in_lines:
        return
    before, after = _filled(old.line), _filled(new.line)
    for field in new.fields:
        name = field["name"]
        if (
            older_name.get(name, name) in before - after
            and name not in after
            and "default" not in field
            and not _takes_null(field["type"])
        ):
            yield f"its lines no longer fill the field {name}, which has no default"


def _renamed(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> dict[str, str]:
    # Return the older name of each field that takes over a removed field by an Avro alias.
    names, kept = {f["name"] for f in old}, {f["name"] for f in new}
    return {
        field["name"]: alias
        for field in new
        if field["name"] not in names
        for alias in field.get("aliases", ())
        if alias in names - kept
    }


def _filled(line: LineRule) -> set[str]:
    # Return the names of the fields that lines fill, for payloads that assign by place.
    return {*line.groups, *(line.columns or ()), *line.header, *filter(None, [line.field])}


def _of_lines(old: LineRule, new: LineRule) -> Iterator[str]:
    if old.payload != new.payload:
        yield f"its payload was {old.payload} and is {new.payload}"
    if new.payload in ("json", "logfmt") and new.unknown == "refuse":
        for name, key in old.keys.items():
            if new.keys.get(name) != key:
                yield f"its key {key!r} was the field {name} (line.keys)"
    if old.time == "observed" and new.time == "event":
        yield "lines without a time were accepted (time = observed)"


def _of_source(old: Source, new: Source) -> Iterator[str]:
    if old.format != new.format:
        yield f"its format was {old.format} and is {new.format}"
    if new.catch_all is None:
        if old.catch_all is not None:
            yield f"it no longer has a catch_all (was {old.catch_all})"
        if lost := [name for name in old.types if name not in new.types]:
            yield f"it no longer carries {', '.join(lost)}"


@dataclasses.dataclass
class _Comparison:
    older_name: Mapping[str, str]  # of the fields of an event that were renamed, by their new name
    old_named: dict[str, Any] = dataclasses.field(default_factory=dict)  # named types found so far
    new_named: dict[str, Any] = dataclasses.field(default_factory=dict)
    seen: set[tuple[str, str]] = dataclasses.field(
        default_factory=set
    )  # pairs of records, because a record may contain itself

    def of(self, old: Any, new: Any, path: str = "") -> Iterator[str]:
        old, new = _resolved(old, self.old_named), _resolved(new, self.new_named)
        match old, new:
            case {"type": "record"}, {"type": "record"}:
                if (names := (old["name"], new["name"])) not in self.seen:
                    self.seen.add(names)
                    yield from self._of_fields(old["fields"], new["fields"], path)
            case {"type": "enum"}, {"type": "enum"}:
                if lost := [symbol for symbol in old["symbols"] if symbol not in new["symbols"]]:
                    yield f"{path} no longer accepts {', '.join(lost)}"
            case {"type": "array"}, {"type": "array"}:
                yield from self.of(old["items"], new["items"], path)
            case {"type": "map"}, {"type": "map"}:
                yield from self.of(old["values"], new["values"], path)
            case list(), list():
                for branch in old:
                    kind = _kind(_resolved(branch, self.old_named))
                    for same in (
                        other for other in new if _kind(_resolved(other, self.new_named)) == kind
                    ):
                        yield from self.of(branch, same, path)

    def _of_fields(self, old: list[Any], new: list[Any], within: str) -> Iterator[str]:
        declared = {field["name"]: field for field in new}
        if not within:
            declared |= {old: declared[name] for name, old in self.older_name.items()}
        for field in old:
            now = declared.get(field["name"])
            name = (now or field)["name"]
            path = f"{within}.{name}" if within else f"field {name}"
            if now is None:
                yield f"{path} is no longer declared, and lines that contain it are rejected"
                continue
            if "default" in field and "default" not in now:
                yield f"{path} no longer has a default, and lines without it are rejected"
            yield from self.of(field["type"], now["type"], path)


def _resolved(schema: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, str):
        return named.get(schema.rpartition(".")[2], schema)
    if isinstance(schema, Mapping) and "name" in schema:
        named[str(schema["name"]).rpartition(".")[2]] = schema
    return schema


def _kind(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    return (
        (schema["type"], str(schema["name"]).rpartition(".")[2])
        if "name" in schema
        else schema["type"]
    )


def _takes_null(schema: Any) -> bool:
    return "null" in schema if isinstance(schema, list) else schema == "null"
