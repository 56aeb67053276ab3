"""Avro schemas of events, Confluent's framing of Kafka values, and Avro's encoding of integers.

Every event schema begins with the envelope. Its record name is the event type with `-` replaced by
`_`, in the namespace `hourmark.events`. Sources: Avro specification 1.12; Confluent wire format.
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
    """Return the parsed schema in a file of this package.

    Args:
        name: File name, such as `audit.avsc`.
    """
    schema: Schema = json.loads(importlib.resources.files("hourmark").joinpath(name).read_text())
    return schema


ENVELOPE: Final[list[Schema]] = read_schema("envelope.avsc")["fields"]
ENVELOPE_NAMES: Final = frozenset(str(field["name"]) for field in ENVELOPE)


def record_name(event_type: str) -> str:
    """Return the Avro record name of an event type, without namespace."""
    return event_type.replace("-", "_")


def event_schema(event_type: str, fields: list[Schema], doc: str = "") -> Schema:
    """Return the Avro schema of an event type: the envelope, then the type's own fields.

    Args:
        event_type: The type's name.
        fields: The type's fields as Avro field declarations.
        doc: Documentation of the type.
    """
    return {
        "type": "record",
        "name": record_name(event_type),
        "namespace": NAMESPACE,
        "doc": doc,
        "fields": [*ENVELOPE, *fields],
    }


def unix_ms(time: dt.datetime) -> int:
    """Convert a timezone-aware datetime to Unix milliseconds, rounded."""
    return round(time.timestamp() * 1000)


def canonical_json(value: object) -> str:
    """Return a value as JSON with sorted keys and without spaces, for digests and comparisons."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(schema: Schema) -> str:
    """Return 16 hex digits that identify a schema, including its defaults and documentation."""
    return digest(canonical_json(schema))


def plain_spelling(schema: Any, namespace: str = "") -> Any:
    """Return an equivalent schema, written as Avro's Java library writes it.

    Schema registries such as Confluent's return schemas in this form. `{"type": "string"}` becomes
    `"string"`, names become relative to the enclosing namespace, and the default values of `order`
    and `aliases` are removed.

    Args:
        schema: A schema as parsed JSON.
        namespace: The enclosing namespace; empty for none.
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
    """Return the 8-byte BLAKE2b digest of a text, as 16 hex digits.

    Such digests identify rules revisions, event types and schemas.
    """
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def framing_header(schema_id: int) -> bytes:
    """Return the 5 bytes that precede the datum in a Kafka value: 0x00 and the schema id."""
    return b"\x00" + schema_id.to_bytes(4, "big")


def unframe(value: bytes) -> tuple[int, bytes]:
    """Split a Kafka value into its schema id and its datum.

    Raises:
        ValueError: The value does not begin with Confluent's framing.
    """
    if len(value) < FRAMING_SIZE or value[0] != 0:
        raise ValueError(
            "the value does not begin with Confluent's framing (0x00 and a 4-byte schema id)"
        )
    return int.from_bytes(value[1:FRAMING_SIZE], "big"), value[FRAMING_SIZE:]


def put_long(value: int, out: bytearray) -> None:
    """Append an integer to `out` in Avro's variable-length zig-zag encoding.

    Args:
        value: An integer of at most 64 bits, signed.
        out: The buffer to append to.
    """
    if 0 <= value < SHORT_END:
        out += SHORT_LONGS[value]
        return
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def encode_long(value: int) -> bytes:
    """Return an integer in Avro's variable-length zig-zag encoding."""
    out = bytearray()
    put_long(value, out)
    return bytes(out)


def _varint(zigzag: int) -> bytes:
    return bytes([zigzag]) if zigzag <= 0x7F else bytes([(zigzag & 0x7F) | 0x80, zigzag >> 7])


SHORT_END: Final = 8192  # smaller numbers, such as most lengths, take at most two bytes
SHORT_LONGS: Final = tuple(_varint(value << 1) for value in range(SHORT_END))
