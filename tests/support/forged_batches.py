"""Somebody else writes under an idempotent producer's id: the broker's own refusals of that
producer's next batch are real.

    forge(bootstrap, log_of, topic, Forgery.NEXT_SEQUENCE, record)   # its next batch is out of order
    forge(bootstrap, log_of, topic, Forgery.NEXT_EPOCH, record)      # its epoch is an old one

Both end as librdkafka's fatal error: the second, as it then begins a new epoch itself and finds
that one taken.

Layouts are those of Kafka's protocol guide: record batches of magic 2, Produce in version 7.
"""

from __future__ import annotations

import enum
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient
from tests.support.waiting import wait_for

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")  # of a batch, up to the number of its records
_UP_TO_CRC: Final = 21
_PRODUCE: Final = struct.Struct(">hhih")
_ANSWER: Final = struct.Struct(">ih")  # partition, error
# A broker acknowledges a batch with the first and last sequence number of an earlier one as its
# duplicate. The next batch of the producer must therefore not have as many records as the forged one.
_RECORDS: Final = 61


class Forgery(enum.Enum):
    """What the producer's next batch will be refused as."""

    NEXT_SEQUENCE = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    NEXT_EPOCH = "INVALID_PRODUCER_EPOCH"


class _Last(NamedTuple):
    """The last batch that an idempotent producer wrote into a partition."""

    producer: int
    epoch: int
    sequence: int
    time_ms: int


def forge(
    bootstrap: str,
    log_of: Callable[[int], Path],
    topic: str,
    forgery: Forgery,
    record: tuple[bytes, bytes],
) -> None:
    """Write this record some dozens of times into partition 0 as the next batch of whoever wrote
    last; tried again while that one is quicker.

    `log_of`: where a broker's logs are.
    """
    address, broker = _leader(bootstrap, topic)
    log = log_of(broker) / f"{topic}-0"

    def written() -> bool:
        last = _last(log)
        if forgery is Forgery.NEXT_EPOCH:
            last = last._replace(epoch=last.epoch + 1, sequence=-1)
        return _produce(address, topic, _batch(last, *record)) == 0

    wait_for(written, f"the broker takes {forgery}", 30)


def _leader(bootstrap: str, topic: str) -> tuple[tuple[str, int], int]:
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=20)
    broker = metadata.brokers[metadata.topics[topic].partitions[0].leader]
    return (str(broker.host), broker.port), broker.id


def _last(log: Path) -> _Last:
    """From the leader's own file."""
    content, at, found = max(log.glob("*.log")).read_bytes(), 0, None
    while at + _HEADER.size <= len(content):
        _, length, _, _, _, _, last_delta, _, time_ms, producer, epoch, sequence, _ = (
            _HEADER.unpack_from(content, at)
        )
        if producer >= 0:
            found = _Last(producer, epoch, sequence + last_delta, time_ms)
        at += 12 + length
    assert found is not None, f"an idempotent producer wrote into {log}"
    return found


def _batch(last: _Last, key: bytes, value: bytes) -> bytes:
    """Copies of one record, the next after `last`."""
    records = b""
    for offset in range(_RECORDS):
        body = b"\0\0" + _varint(offset) + _varint(len(key)) + key
        body += _varint(len(value)) + value + b"\0"
        records += _varint(len(body)) + body
    times = last.time_ms, last.time_ms
    producer = last.producer, last.epoch, last.sequence + 1
    checked = struct.pack(">hiqqqhii", 0, _RECORDS - 1, *times, *producer, _RECORDS) + records
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, _crc32c(checked)) + checked


def _produce(address: tuple[str, int], topic: str, batch: bytes) -> int:
    """Kafka's error code of it."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    request = _PRODUCE.pack(0, 7, 1, -1) + struct.pack(">hhii", -1, -1, 10_000, 1) + name
    request += struct.pack(">iii", 1, 0, len(batch)) + batch
    with socket.create_connection(address, 10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (length,) = struct.unpack(">i", answer.read(4))
        _, error = _ANSWER.unpack_from(answer.read(length), 8 + len(name) + 4)
        return int(error)


def _varint(number: int) -> bytes:
    """Zigzag, as of a number that is not negative."""
    number, made = number << 1, bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
