"""Detection of declarations that reject lines which are accepted under the rules in force.

It finds only rejections that follow from the declarations alone: something that was accepted and no
longer is. Whether a changed pattern matches future lines cannot be decided; see
docs/decisions/2026-11-23-declarations-that-refuse-lines.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from hourmark.errors import UsageError
from hourmark.records import dead_letters
from hourmark.rules.event_types import Declarations, EventType, LineRule, Source
from hourmark.rules.revision import Rules


def check_refused_lines(latest: Rules | None, declared: Declarations, *, may_refuse: bool) -> None:
    """Check that new declarations do not reject lines that the rules in force accept.

    The rules in force are the latest published declarations. Rejected lines would be stored as dead
    letters instead of events. Only rejections that follow from the declarations themselves are
    found, such as a removed field.

    Args:
        latest: The rules revision in force; None if there is none, which permits every declaration.
        declared: The new declarations.
        may_refuse: Whether such a change is allowed. If true, nothing is checked.

    Raises:
        UsageError: Lines would become dead letters. The message contains the types, sources and
            fields.
    """
    refused = [] if latest is None or may_refuse else [*_refused(latest, declared)]
    if refused:
        raise UsageError(
            f"lines that are events now would become dead letters: {'; '.join(refused[:10])}"
            f"{f'; and {len(refused) - 10} more' if len(refused) > 10 else ''}. Nothing was "
            "changed. Declare it so that they are "
            "accepted, or, if no program writes such lines any more, confirm with "
            "--refuse-lines"
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
    yield from _Comparison().of(old_schema, new.schema())
    yield from _of_lines(old.line, new.line)
    if old.line.pattern is not None and new.line.pattern is not None:
        needed = {
            field["name"]
            for field in new.fields
            if "default" not in field and not _takes_null(field["type"])
        }
        for group in sorted(needed & (old.line.groups - new.line.groups) - {new.line.field}):
            yield f"its pattern lost the group {group}, and that field has no default"


def _of_lines(old: LineRule, new: LineRule) -> Iterator[str]:
    if old.payload != new.payload:
        yield f"its payload was {old.payload} and is {new.payload}"
    if old.time == "observed" and new.time == "event":
        yield "lines without a time were accepted (time = observed)"


def _of_source(old: Source, new: Source) -> Iterator[str]:
    if old.format != new.format:
        yield f"its format was {old.format} and is {new.format}"
    if new.catch_all is None:
        if old.catch_all is not None:
            yield f"it has no catch_all any more (was {old.catch_all})"
        if lost := [name for name in old.types if name not in new.types]:
            yield f"it carries {', '.join(lost)} no more"


@dataclasses.dataclass
class _Comparison:
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
                    yield f"{path} takes {', '.join(lost)} no more"
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
        for field in old:
            path = f"{within}.{field['name']}" if within else f"field {field['name']}"
            now = declared.get(field["name"])
            if now is None:
                yield f"{path} is declared no more, and lines that have it are refused"
                continue
            if "default" in field and "default" not in now:
                yield f"{path} lost its default, and lines without it are refused"
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
