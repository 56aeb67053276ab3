"""Central partitions that cannot be read: the failed offset, the reason, and the next retry.

Each such partition has one row, and only its event type waits. The partition is omitted from
batches until its next retry, with increasing delays. The row is deleted once the partition is
staged beyond the offset.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Connection, delete, select

from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, delete_rows, replace_rows
from hourmark_etl.model import from_columns

_TABLE = tables.read_errors
PAUSE_MS: Final = 2_000  # after the first error, and twice as long after each further one
PAUSE_MS_MAX: Final = 300_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadError:
    """A failure to read a Kafka partition at one offset, with the time of the next retry.

    Attributes:
        topic: Topic name on the central cluster.
        partition: Partition number.
        offset: First offset that could not be read.
        reason: Human-readable reason.
        since_ms: Time of the first failure at this offset, Unix milliseconds.
        tries: Number of consecutive failures at this offset.
        again_at_ms: Time of the next retry, Unix milliseconds.
    """

    topic: str
    partition: int
    offset: int
    reason: str
    since_ms: int
    tries: int = 1
    again_at_ms: int = 0

    @property
    def topic_partition(self) -> Partition:
        """Return the topic-partition on the central cluster that could not be read."""
        return Partition(self.topic, self.partition)

    def __str__(self) -> str:
        return (
            f"topic {self.topic} partition {self.partition} cannot be read from offset "
            f"{self.offset} on: {self.reason}"
        )


def read_errors(database: Database) -> dict[Partition, ReadError]:
    """Return the current read errors of Kafka partitions.

    Args:
        database: The ledger (the ETL's state database).

    Returns:
        Errors by topic-partition; empty if every partition can be read.
    """
    found = (from_columns(ReadError, row) for row in database.fetch(select(_TABLE)).mappings())
    return {error.topic_partition: error for error in found}


def record_read_errors(
    database: Database, lease: Lease, errors: Collection[ReadError]
) -> list[ReadError]:
    """Store read errors of Kafka partitions in a new transaction, and schedule their retries.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the consumer that reads the partitions.
        errors: One error per partition that could not be read; if empty, nothing is changed.

    Returns:
        The new errors with the time of their next retry; empty if there are none. An error is new
        if the ledger had no error of the partition at the same offset.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    if not errors:
        return []
    with database.transaction(lease) as connection:
        return put_read_errors(connection, errors)


def delete_resolved_read_errors(
    database: Database, lease: Lease, partitions: Collection[Partition]
) -> None:
    """Delete the read errors of Kafka partitions that can be read again and have no new records.

    If a partition has new records, the commit of the next batch deletes its error, so this function
    is not needed.

    Args:
        database: The ledger (the ETL's state database).
        lease: Lease of the consumer (streaming query) that reads the partitions.
        partitions: Partitions; if empty, nothing is changed.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    if partitions:
        with database.transaction(lease) as connection:
            delete_rows(
                connection,
                _TABLE,
                ("topic", "partition"),
                [dataclasses.asdict(p) for p in partitions],
            )


def put_read_errors(connection: Connection, errors: Collection[ReadError]) -> list[ReadError]:
    """Store read errors in the caller's transaction, and schedule the next retry of each partition.

    A read error states that a Kafka partition could not be read at an offset. The delay before a
    retry doubles with each failure, up to 5 minutes.

    Args:
        connection: The caller's transaction on the ledger (the ETL's state database).
        errors: One error per partition that could not be read; `since_ms` is the time of the
            current failure.

    Returns:
        The errors that the ledger did not contain at the same offset, with the time of the next
        retry; empty if all were known.
    """
    rows = (
        {(r["topic"], r["partition"]): r for r in connection.execute(select(_TABLE)).mappings()}
        if errors
        else {}
    )
    made, new = [], []
    for error in errors:
        known = rows.get((error.topic, error.partition))
        if known is not None and known["offset"] == error.offset:
            tries, since_ms = known["tries"] + 1, known["since_ms"]
        else:
            tries, since_ms = 1, error.since_ms
        pause_ms = min(PAUSE_MS << min(tries - 1, 30), PAUSE_MS_MAX)
        made.append(
            dataclasses.replace(
                error, tries=tries, since_ms=since_ms, again_at_ms=error.since_ms + pause_ms
            )
        )
        if tries == 1:
            new.append(made[-1])
    replace_rows(connection, _TABLE, ("topic", "partition"), [dataclasses.asdict(e) for e in made])
    return new


def delete_passed_read_errors(connection: Connection, reached: Mapping[Partition, int]) -> None:
    """Delete the read errors of Kafka partitions that have been read beyond the failed offset.

    Args:
        connection: The caller's transaction on the ledger (the ETL's state database).
        reached: Next offset to read, by partition.
    """
    for p, offset in reached.items():
        here = (
            _TABLE.c.topic == p.topic,
            _TABLE.c.partition == p.partition,
            _TABLE.c.offset < offset,
        )
        connection.execute(delete(_TABLE).where(*here))


def delete_read_error(connection: Connection, error: ReadError) -> None:
    """Delete a read error, identified by topic, partition and offset.

    Args:
        connection: The caller's transaction.
        error: The read error.

    Raises:
        UsageError: The partition has no read error at that offset.
    """
    here = (
        _TABLE.c.topic == error.topic,
        _TABLE.c.partition == error.partition,
        _TABLE.c.offset == error.offset,
    )
    if connection.execute(delete(_TABLE).where(*here)).rowcount != 1:
        raise UsageError(
            f"topic {error.topic} partition {error.partition} is no longer blocked at offset "
            f"{error.offset}; run the command again"
        )
