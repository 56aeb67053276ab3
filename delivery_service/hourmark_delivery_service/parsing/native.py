"""The native parser: converts RFC 5424 lines to records in C, for lines without special cases.

All other lines are parsed in Python, line by line. Python is the reference: for the lines that the
native parser accepts, it produces the same bytes, and it never rejects a line. Without the compiled
module (`hourmark_native`), or if a revision names an unknown parser version, Python parses all
lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hourmark_native as native
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
    """The description of an event type for the native parser, which parses simple lines in C.

    Exactly one of the attributes is set, depending on the payload format of the type.

    Attributes:
        program: For a JSON payload, an object of the compiled module that encodes the payload as
            Avro. It is created from the output of `compile_program`. None for text.
        text: For a text payload, the parameters for encoding it as Avro. None for JSON.

    The tuple `text` contains:

    - whether to remove a byte order mark from the start of the text
    - the encoded fields before the field for the text
    - the encoded fields after this field
    - the alternatives for encoding the text, in the order to try them: the encoded index of a union
      branch (empty if the type is not a union), and whether the text may be invalid UTF-8
    """

    program: Any
    text: tuple[bool, bytes, bytes, tuple[tuple[bytes, bool], ...]] | None


def native_type(
    kind: CompiledType, schema: Mapping[str, Any], envelope_size: int
) -> NativeType | None:
    """Return the description of an event type for the native parser.

    The native parser parses simple lines in C. Python parses all other lines.

    Args:
        kind: Compiled event type.
        schema: Parsed Avro schema of the type.
        envelope_size: Number of leading fields in the schema that are common to all event types.

    Returns:
        The description. None if lines of this type can be parsed only in Python, or if the compiled
        module is not installed.
    """
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
    """Return the description of a source for the native parser, which parses simple lines in C.

    A source is a declared kind of log file with the event types of its lines.

    Args:
        source: Declared source.
        types: Maps the name of each event type to the compiled type.
        numbers: Maps the name of each event type to its number in the results of the native parser.

    Returns:
        An object of the compiled module, to be passed to the native parser. None if lines of this
        source can be parsed only in Python, or if the compiled module is not installed.
    """
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
