"""Checks whether one Avro schema can read data written with another.

Applies Avro's schema resolution (Apache's own checker). The registry is not used, because a
recreated registry lacks earlier versions. The checker compares encodings; this module also compares
meanings: logical type, scale, and which of two fields an alias refers to.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroWarning
from avro.schema import parse

from hourmark.avro.framing import Schema

_TEXTS: Final = ("bytes", "string")
_MEANING: Final = ("logicalType", "scale")  # what must not change; a decimal's precision may grow


def find_incompatibility(written: Schema, reader: Schema) -> str | None:
    """Check whether records written with one Avro schema can be read with another.

    Checks Avro's schema resolution rules. Also checks that the values of each field keep their
    meaning: the logical type, the decimal scale, and the field that an alias refers to.

    Args:
        written: Record schema of the writer.
        reader: Record schema of the reader.

    Returns:
        A text that names the affected field and the first problem; None if the schemas are
        compatible.
    """
    reader = _with_full_aliases(reader, "")
    found = ReaderWriterCompatibilityChecker().get_compatibility(_parsed(reader), _parsed(written))  # type: ignore[no-untyped-call]
    if found.compatibility is not SchemaCompatibilityType.compatible:
        where = ", ".join(sorted({_field(reader, location) for location in found.locations}))
        return f"{where} ({'; '.join(sorted(found.messages))})"
    return next(_other_meanings(written, reader), None)


def _parsed(schema: Schema) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", AvroWarning
        )  # unknown logical types do not affect the encoding
        return parse(json.dumps(schema))


def _other_meanings(written: Schema, reader: Schema) -> Iterator[str]:
    fields = {f["name"]: f for f in written["fields"]}
    for field in reader["fields"]:
        found = [name for name in (field["name"], *field.get("aliases", ())) if name in fields]
        if len(found) > 1:
            yield (
                f"field {field['name']} (it would read both {' and '.join(found)}, which both "
                "contain data: keep only one of the names)"
            )
        if (
            found
            and _is_or_has(field["type"], "string")
            and _is_or_has(fields[found[0]]["type"], "bytes")
        ):
            yield f"field {field['name']} (its existing bytes may not be valid text)"
        if found and _meanings(fields[found[0]]["type"]) != _meanings(field["type"]):
            yield (
                f"field {field['name']} (its logical type, unit or scale has changed, so "
                "existing values would be misinterpreted)"
            )


def _is_or_has(kind: Any, name: str) -> bool:
    branches = kind if isinstance(kind, list) else [kind]
    return name in branches and not any(other in branches for other in _TEXTS if other != name)


def _meanings(kind: Any) -> list[Any]:
    if isinstance(kind, list):
        return sorted((m for branch in kind for m in _meanings(branch)), key=repr)
    if not isinstance(kind, Mapping):
        return []
    inner = [kind[part] for part in ("items", "values") if part in kind]
    inner += [f["type"] for f in kind.get("fields", ())]
    inner += [kind["type"]] if isinstance(kind["type"], Mapping | list) else []
    own = [tuple(kind.get(name) for name in _MEANING)] if "logicalType" in kind else []
    return own + [m for part in inner for m in _meanings(part)]


def _with_full_aliases(schema: Any, namespace: str) -> Any:
    # Return a copy of the schema with full names as aliases, as the Avro checker compares them.
    if isinstance(schema, list):
        return [_with_full_aliases(branch, namespace) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    if made.get("type") in ("record", "enum", "fixed"):
        namespace = made["name"].rpartition(".")[0] or made.get("namespace", namespace)
        if "aliases" in made:
            made["aliases"] = [
                alias if "." in alias else f"{namespace}.{alias}" for alias in made["aliases"]
            ]
    for part in ("type", "items", "values"):
        if part in made:
            made[part] = _with_full_aliases(made[part], namespace)
    if "fields" in made:
        made["fields"] = [_with_full_aliases(field, namespace) for field in made["fields"]]
    return made


def _field(reader: Schema, location: str) -> str:
    _, *parts = location.split("/")
    if parts[:1] == ["fields"] and len(parts) > 1:
        return f"field {reader['fields'][int(parts[1])]['name']}"
    return location
