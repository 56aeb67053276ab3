"""Hash of a record value. The checksums in audit records are sums of these hashes.

A checksum is the sum of its records' hashes, modulo 2^64, so it does not depend on their order. It
detects a value that changed anywhere between the delivery service and the bucket, and values that
were exchanged between events, because each hash includes the event id. It does not protect against
an attacker who can choose and write records.

The hash is XXH64 (xxHash specification, version 0.2.0) of the datum, which is the value without its
5 bytes of framing. The seed is the sum, modulo 2^64, of the id's last 8 bytes (big-endian) and the
schema id. The delivery service and the ETL compute it in native code (`hourmark_native`) if
available; this module is the reference.
"""

from __future__ import annotations

from typing import Final

import xxhash

from hourmark.avro.framing import FRAMING_SIZE

_MODULUS: Final = 1 << 64


def value_hash(event_id: bytes, value: bytes) -> int:
    """Return the 64-bit hash of an event's Kafka value.

    The hash covers the event id, the schema id and the datum. Audit records contain sums of these
    hashes, which are used to detect changed values.

    Args:
        event_id: The 16-byte event id of the record.
        value: The Kafka value in Confluent's wire format: 0x00, the schema id (4 bytes,
            big-endian), the Avro datum.

    Returns:
        An XXH64 hash from 0 to 2^64 - 1.
    """
    seed = int.from_bytes(event_id[8:], "big") + int.from_bytes(value[1:FRAMING_SIZE], "big")
    return xxhash.xxh64_intdigest(value[FRAMING_SIZE:], seed % _MODULUS)
