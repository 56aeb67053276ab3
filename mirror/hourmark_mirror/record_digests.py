"""Reads committed records of one topic-partition as digests of key and value, in bounded memory."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.committed_reader import CommittedReader

QUEUE_KB: Final = 16 * 1024
BATCH: Final = 500


class RecordDigest(NamedTuple):
    """Digest of one Kafka record, used to compare the record between two clusters.

    Attributes:
        offset: Offset of the record.
        timestamp_ms: Record timestamp, in Unix milliseconds.
        key: Record key; None if the record has no key.
        digest: 16-byte BLAKE2b digest of the length-prefixed key and value.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    digest: bytes


def content_digest(key: bytes | None, value: bytes | None) -> bytes:
    """Return the 16-byte BLAKE2b digest of a record's key and value.

    Records with equal digests have the same content. A missing key or value (None) and an empty one
    have different digests.

    Args:
        key: Record key; None if the record has no key.
        value: Record value; None for a tombstone.

    Returns:
        16 bytes.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.digest()


def open_reader(cluster: Cluster, max_message_bytes: int) -> CommittedReader:
    """Open a Kafka consumer that reads only records of committed transactions.

    The reader can be used for any number of consecutive `read_digests` calls.

    Args:
        cluster: Cluster to read from.
        max_message_bytes: Maximum size of a record in bytes, which is also the maximum fetch size
            for each topic-partition.

    Returns:
        An open reader, which the caller must close.
    """
    return CommittedReader(
        cluster.settings,
        cluster.name,
        batch=BATCH,
        queue_kb=QUEUE_KB,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=max_message_bytes,
    )


def read_digests(
    reader: CommittedReader, partition: Partition, start: int, end: int
) -> Generator[RecordDigest, None, None]:
    """Yield a digest for each committed record in an offset range, in offset order.

    If retention deletes records during the read, reading continues at the new start of the log.

    Args:
        reader: Reader from `open_reader`. Do not use it for another read until this generator is
            closed.
        partition: Topic-partition to read.
        start: First offset (inclusive).
        end: End offset of the records to read (exclusive).

    Yields:
        Offset, timestamp, key and content digest of each record.

    Raises:
        Unavailable: The cluster does not respond.
    """
    for runs in reader.read({partition: (start, end)}):
        for record in (record for run in runs for record in run.records):
            key, offset = record.key(), record.offset()
            assert offset is not None, "a record has an offset"
            yield RecordDigest(
                offset, record.timestamp()[1], key, content_digest(key, record.value())
            )


@contextlib.contextmanager
def digests_since(
    cluster: Cluster, reader: CommittedReader, partition: Partition, time_ms: int, end: int
) -> Generator[Iterator[RecordDigest], None, None]:
    """Open an iterator over record digests, starting at a given timestamp, for a `with` block.

    The iterator starts at the first record with a timestamp of `time_ms` or later. The broker finds
    it with its time index, which is inexact: records with a timestamp of exactly `time_ms` may be
    skipped.

    Args:
        cluster: Cluster that the reader is connected to.
        reader: Reader from `open_reader`.
        partition: Topic-partition to read.
        time_ms: Record timestamp at which to start, in Unix milliseconds.
        end: End offset of the records to read (exclusive).

    Yields:
        An iterator over the digests in offset order; empty if there is no such record before `end`.
        It must not be used after the `with` block.

    Raises:
        Unavailable: The cluster does not respond.
    """
    first = cluster.at_time([partition], time_ms)[partition]
    with contextlib.closing(read_digests(reader, partition, first, end)) as records:
        yield itertools.dropwhile(lambda record: record.timestamp_ms < time_ms, records)
