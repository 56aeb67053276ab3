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
    """Load an Avro schema that is part of the installed package `hourmark`.

    Args:
        name: File name, such as `audit.avsc`.

    Returns:
        The schema as parsed JSON.

    Raises:
        FileNotFoundError: The package contains no such file.
    """
    schema: Schema = json.loads(importlib.resources.files("hourmark").joinpath(name).read_text())
    return schema


ENVELOPE: Final[list[Schema]] = read_schema("envelope.avsc")["fields"]
ENVELOPE_NAMES: Final = frozenset(str(field["name"]) for field in ENVELOPE)


def record_name(event_type: str) -> str:
    """Return the name of the Avro record of an event type.

    Avro names may not contain hyphens, so they become underscores: `page-view` becomes `page_view`.
    The namespace is not included.

    Args:
        event_type: Name of the event type.
    """
    return event_type.replace("-", "_")


def event_schema(event_type: str, fields: list[Schema], doc: str = "") -> Schema:
    """Return the Avro schema of an event type.

    The schema contains the fields common to all events (the envelope), followed by the type's own
    fields. It is not validated.

    Args:
        event_type: Name of the event type.
        fields: The type's own fields as Avro field declarations.
        doc: Documentation of the type, stored in the schema.

    Returns:
        The record schema as a JSON object in the namespace `hourmark.events`.
    """
    return {
        "type": "record",
        "name": record_name(event_type),
        "namespace": NAMESPACE,
        "doc": doc,
        "fields": [*ENVELOPE, *fields],
    }


def unix_ms(time: dt.datetime) -> int:
    """Convert a timezone-aware datetime to Unix milliseconds.

    Args:
        time: The time. Microseconds are rounded to the nearest millisecond.

    Returns:
        Milliseconds since 1970-01-01 00:00 UTC. Negative for an earlier time.
    """
    return round(time.timestamp() * 1000)


def canonical_json(value: object) -> str:
    """Serialize a value as canonical JSON, for digests and comparisons.

    Equal values give the same text: keys are sorted, and there are no spaces.

    Args:
        value: A value that `json.dumps` accepts.

    Raises:
        TypeError: The value cannot be represented in JSON.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(schema: Schema) -> str:
    """Return the fingerprint of an Avro schema.

    Schemas that differ only in the order of JSON keys have the same fingerprint. Unlike Avro's
    parsing canonical form, it covers default values and documentation.

    Args:
        schema: The schema as parsed JSON.

    Returns:
        16 hex digits: the 8-byte BLAKE2b digest of the schema's canonical JSON.
    """
    return digest(canonical_json(schema))


def plain_spelling(schema: Any, namespace: str = "") -> Any:
    """Return an equivalent schema in the compact form that Avro's Java library writes.

    Schema registries such as Confluent's return schemas in this form. Convert schemas before you
    compare them. `{"type": "string"}` becomes `"string"`, names become relative to the enclosing
    namespace, and the default values of `order` and `aliases` are removed.

    Args:
        schema: A schema as parsed JSON. It is not modified.
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
    """Return a 64-bit digest of a string.

    Rules revisions, event types and schemas are identified by such digests. At this size, a digest
    does not protect against deliberate collisions.

    Args:
        text: The string, which is hashed as UTF-8.

    Returns:
        16 hex digits: the 8-byte BLAKE2b digest.
    """
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def framing_header(schema_id: int) -> bytes:
    """Return the 5-byte header that precedes an Avro datum in a Kafka value.

    The format is Confluent's: the byte 0x00, then the schema id in big-endian order.

    Args:
        schema_id: Id of the writer schema in the schema registry, below 2^32.
    """
    return b"\x00" + schema_id.to_bytes(4, "big")


def unframe(value: bytes) -> tuple[int, bytes]:
    """Split a Kafka value into its schema id and its Avro datum.

    Args:
        value: The Kafka value in Confluent's wire format: 0x00, a 4-byte schema id, the datum.

    Returns:
        The schema id and the encoded datum.

    Raises:
        ValueError: The value does not begin with 0x00 or has fewer than 5 bytes.
    """
    if len(value) < FRAMING_SIZE or value[0] != 0:
        raise ValueError(
            "the value does not begin with Confluent's framing (0x00 and a 4-byte schema id)"
        )
    return int.from_bytes(value[1:FRAMING_SIZE], "big"), value[FRAMING_SIZE:]


def put_long(value: int, out: bytearray) -> None:
    """Append an integer to a buffer in Avro's variable-length zig-zag encoding.

    Args:
        value: A signed integer of at most 64 bits. The range is not checked.
        out: The buffer. It grows by 1 to 10 bytes.
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
    """Encode an integer in Avro's variable-length zig-zag encoding.

    Args:
        value: A signed integer of at most 64 bits. The range is not checked.

    Returns:
        1 to 10 bytes.
    """
    out = bytearray()
    put_long(value, out)
    return bytes(out)


def _varint(zigzag: int) -> bytes:
    return bytes([zigzag]) if zigzag <= 0x7F else bytes([(zigzag & 0x7F) | 0x80, zigzag >> 7])


SHORT_END: Final = 8192  # smaller numbers, such as most lengths, take at most two bytes
SHORT_LONGS: Final = tuple(_varint(value << 1) for value in range(SHORT_END))
