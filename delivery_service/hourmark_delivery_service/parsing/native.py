"""The native pass: lines in RFC 5424 to records in C, for what is beyond doubt.

All else is the Python path's, line by line.

The Python path is the reference: what the pass takes, it makes byte for byte what that would make,
and it never refuses a line. Without the compiled module (`hourmark.native`), or where a revision
names a parser that it does not know, the Python path does it all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hourmark import native
from hourmark.rules.event_types import Source
from hourmark_delivery_service.parsing.native_program import (
    ProgramField,
    compile_program,
    text_alternatives,
)
from hourmark_delivery_service.parsing.values.encode import AvroType

if TYPE_CHECKING:
    from hourmark_delivery_service.parsing.compiled import CompiledField, CompiledType

PARSERS: Final = (1, 2, 3)  # those whose results the pass makes
LINES_MAX: Final = 2048  # in one go: about two milliseconds
BYTES_MAX: Final = 256 << 10
MODULE, WHY_NOT = native.MODULE, native.WHY_NOT


class NativeType(NamedTuple):
    """What the pass needs of a type: the program of a JSON payload, or how a text is taken."""

    program: Any
    text: tuple[bool, bytes, bytes, tuple[tuple[bytes, bool], ...]] | None


def native_type(
    kind: CompiledType, schema: Mapping[str, Any], envelope_size: int
) -> NativeType | None:
    """None where the pass cannot take lines of this type."""
    if MODULE is None:
        return None
    types = [field["type"] for field in schema["fields"]]
    if kind.rule.payload == "json":
        fields = [
            ProgramField(f.name, t, f.default)
            for f, t in zip(kind.fields, types[envelope_size:], strict=True)
        ]
        return _native_json(types[:envelope_size], fields)
    if kind.rule.payload == "text" and kind.line_field is not None:
        return _native_text(
            kind.fields, kind.line_field, types[envelope_size + kind.fields.index(kind.line_field)]
        )
    return None


def _native_json(envelope: Sequence[AvroType], fields: Sequence[ProgramField]) -> NativeType | None:
    try:
        return (
            NativeType(MODULE.program(compile_program(envelope, fields)), None)
            if MODULE is not None
            else None
        )
    except (
        ValueError
    ):  # beyond its limits, or what it does not know: the type is a good one, and Python's
        return None


def _native_text(
    fields: tuple[CompiledField, ...], field: CompiledField, avro_type: Any
) -> NativeType | None:
    alternatives, place = text_alternatives(avro_type), fields.index(field)
    around = [f.absent for f in fields if f is not field]
    if alternatives is None or None in around:
        return None
    filled = [part for part in around if part is not None]
    before, after = b"".join(filled[:place]), b"".join(filled[place:])
    return NativeType(
        None,
        (
            not field.takes_bytes,
            before,
            after,
            tuple((a.branch, a.any_bytes) for a in alternatives),
        ),
    )


def native_source(
    source: Source, types: Mapping[str, CompiledType], numbers: Mapping[str, int]
) -> Any:
    """What the pass needs of a source's types; None where it can take none of its lines."""
    if MODULE is None or source.format != "rfc5424":
        return None
    described = tuple(
        (
            name.encode(),
            numbers[name],
            types[name].header,
            types[name].rule.time == "observed",
            *native,
        )
        for name in sorted(set(source.types) & types.keys())
        if (native := types[name].native) is not None
    )
    return MODULE.source(described) if described else None
