"""Whether one schema can read what another wrote, by Avro's rules of schema resolution (Apache's own checker).

Asked here and not of the registry alone: a registry that was made anew has forgotten what was written before.
"""

from __future__ import annotations

import json
import warnings

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroWarning
from avro.schema import parse

from hourmark.avro import Schema


def why_unreadable(written: Schema, reader: Schema) -> str | None:
    """Why `reader` cannot read what was written with `written`, naming the field; None where it can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AvroWarning)  # logical types that it does not know change no encoding
        one, other = parse(json.dumps(reader)), parse(json.dumps(written))
    found = ReaderWriterCompatibilityChecker().get_compatibility(one, other)  # type: ignore[no-untyped-call]
    if found.compatibility is SchemaCompatibilityType.compatible:
        return None
    where = ", ".join(sorted({_field(reader, location) for location in found.locations}))
    return f"{where} ({'; '.join(sorted(found.messages))})"


def _field(reader: Schema, location: str) -> str:
    """`/fields/7/type` as a reader knows it."""
    _, *parts = location.split("/")
    if parts[:1] == ["fields"] and len(parts) > 1:
        return f"field {reader['fields'][int(parts[1])]['name']}"
    return location
