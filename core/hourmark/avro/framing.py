"""Avro schemas of what travels: the envelope that begins every event; Confluent's framing of Kafka
values; Avro's long.

Record name: the type with `-` as `_`; namespace `hourmark.events`. Source: Avro specification 1.12;
Confluent's wire format.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

NAMESPACE: Final = "hourmark.events"
FRAMING_SIZE: Final = 5  # magic byte 0x00, then the schema id as 4 bytes big-endian


def read_schema(name: str) -> Schema:
    """A schema of this package, from the file of that name."""
    schema: Schema = json.loads(importlib.resources.files("hourmark").joinpath(name).read_text())
    return schema


ENVELOPE: Final[list[Schema]] = read_schema("envelope.avsc")["fields"]
ENVELOPE_NAMES: Final = frozenset(str(field["name"]) for field in ENVELOPE)


def record_name(event_type: str) -> str:
    """The name of a type's record within the namespace."""
    return event_type.replace("-", "_")


def event_schema(event_type: str, fields: list[Schema], doc: str = "") -> Schema:
    """The schema of a type's events: the envelope, then the type's own fields."""
    return {
        "type": "record",
        "name": record_name(event_type),
        "namespace": NAMESPACE,
        "doc": doc,
        "fields": [*ENVELOPE, *fields],
    }


def unix_ms(time: dt.datetime) -> int:
    """Of a timestamp that was read."""
    return round(time.timestamp() * 1000)


def canonical_json(value: object) -> str:
    """JSON with one spelling for equal values: sorted keys, no spaces. For digests and
    comparisons.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(schema: Schema) -> str:
    """16 hex digits that change whenever the schema does, its defaults and docs included."""
    return digest(canonical_json(schema))


def plain_spelling(schema: Any, namespace: str = "") -> Any:
    """The schema in the one of its spellings that Avro's Java library writes, and with it some
    registries (Confluent's): `{"type": "string"}` is `"string"`, names are relative to their
    namespace, and what is so by default is left out.
    """
    if isinstance(schema, list):
        return [plain_spelling(branch, namespace) for branch in schema]
    if isinstance(schema, str):
        return schema.removeprefix(f"{namespace}.") if namespace else schema
    if not isinstance(schema, Mapping):
        return schema
    if set(schema) == {"type"} and isinstance(schema["type"], str):
        return plain_spelling(schema["type"], namespace)
    made = {
        key: value
        for key, value in schema.items()
        if (key, value) not in (("order", "ascending"), ("aliases", []))
    }
    if made.get("type") in ("record", "enum", "fixed"):
        space, _, made["name"] = made["name"].rpartition(".")
        space = space or made.pop("namespace", namespace)
        made.pop("namespace", None)
        if space != namespace:
            made["namespace"] = space
        namespace = space
    for part in ("type", "items", "values"):
        if part in made:
            made[part] = plain_spelling(made[part], namespace)
    if "fields" in made:
        made["fields"] = [plain_spelling(field, namespace) for field in made["fields"]]
    return made


def digest(text: str) -> str:
    """16 hex digits of BLAKE2b: how rules, types and schemas are named by their content."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def framing_header(schema_id: int) -> bytes:
    """What stands before the datum in a Kafka value."""
    return b"\x00" + schema_id.to_bytes(4, "big")


def unframe(value: bytes) -> tuple[int, bytes]:
    """Schema id and datum of a Kafka value; ValueError if it is not framed."""
    if len(value) < FRAMING_SIZE or value[0] != 0:
        raise ValueError(
            "the value does not begin with Confluent's framing (0x00 and a 4-byte schema id)"
        )
    return int.from_bytes(value[1:FRAMING_SIZE], "big"), value[FRAMING_SIZE:]


def put_long(value: int, out: bytearray) -> None:
    """Append a whole number in Avro's variable-length zig-zag form."""
    if 0 <= value < SHORT_END:
        out += SHORT_LONGS[value]
        return
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def encode_long(value: int) -> bytes:
    """The same by itself."""
    out = bytearray()
    put_long(value, out)
    return bytes(out)


def _varint(zigzag: int) -> bytes:
    return bytes([zigzag]) if zigzag <= 0x7F else bytes([(zigzag & 0x7F) | 0x80, zigzag >> 7])


SHORT_END: Final = 8192  # below it, at most two bytes: lengths, and most numbers
SHORT_LONGS: Final = tuple(_varint(value << 1) for value in range(SHORT_END))
