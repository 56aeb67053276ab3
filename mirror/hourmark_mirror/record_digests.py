"""Reads a span of one topic-partition's committed records, in bounded memory, each as a digest of
its key and value.
"""

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
    """What is compared of a record: its content as 16 bytes of BLAKE2b over length-prefixed key and
    value.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    digest: bytes


def content_digest(key: bytes | None, value: bytes | None) -> bytes:
    """Differs wherever key or value differ, also between absent and empty."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.digest()


def open_reader(cluster: Cluster, max_message_bytes: int) -> CommittedReader:
    """For `read_span`, one span after the other. Close it at the end."""
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
    """Records with start ≤ offset < end; where retention overtakes the reader, from the log's start
    on.

    Unavailable as `CommittedReader.read`.
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
    """Records before `end`, from one of this time or later on; it is the first of them, but that
    some of just this time may be passed over.

    For so a broker answers that is asked for a time: it begins at an entry of its time index, which
    is no later; and it may name the first record of the batch that holds it, which is older: those
    are left out here.
    """
    first = cluster.at_time([partition], time_ms)[partition]
    with contextlib.closing(read_digests(reader, partition, first, end)) as records:
        yield itertools.dropwhile(lambda record: record.timestamp_ms < time_ms, records)
