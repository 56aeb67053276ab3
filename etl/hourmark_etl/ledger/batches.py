"""Commits of the consumer: positions by compare-and-set, with the groups staged up to them."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import zstandard
from sqlalchemy import ColumnElement, Connection, Table, insert, select, union

from hourmark.errors import UsageError
from hourmark.kafka.clients import Partition, TopicInfo
from hourmark.kafka.topic_names import AUDIT, CONTROL
from hourmark_etl.errors import StaleDriver, TopicReplaced
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import Database, Lease, select_by_names
from hourmark_etl.ledger.digests import check_digest, update_rows, with_digest
from hourmark_etl.ledger.offset_gaps import OffsetGap, open_gaps, put_gaps
from hourmark_etl.ledger.read_errors import (
    ReadError,
    clear_passed_errors,
    delete_read_error,
    put_errors,
)
from hourmark_etl.ledger.reporters import put_reports
from hourmark_etl.ledger.set_aside import put_set_aside
from hourmark_etl.model import (
    DEFAULT_SHARD,
    FIRST_SITE,
    AuditGroup,
    StagedBatch,
    StagedFile,
    StagedGroup,
    StagingPosition,
    from_columns,
    to_columns,
    to_signed,
)

_LOG = logging.getLogger(__name__)


def positions(database: Database, cluster_id: str) -> list[StagingPosition]:
    """Return the staging position of every partition of a cluster, or an empty list.

    A position is the next offset of a topic-partition to stage.

    Raises:
        DamagedRow: The digest of a ledger row does not match its content.
    """
    query = select(tables.positions).where(tables.positions.c.cluster_id == cluster_id)
    return [decode_position(row) for row in database.fetch(query).mappings()]


def positions_of_topic(database: Database, partition: Partition) -> list[StagingPosition]:
    """Return the positions of a partition in all topics that ever had the topic's name.

    A topic that was deleted and recreated has one position for each topic id.
    """
    kept = tables.positions
    query = select(kept).where(
        kept.c.topic == partition.topic, kept.c.partition == partition.partition
    )
    return [decode_position(row) for row in database.fetch(query).mappings()]


def decode_position(row: Mapping[Any, Any]) -> StagingPosition:
    """Return the position in a complete row of the table `positions`.

    Raises:
        DamagedRow: The digest of a ledger row does not match its content.
    """
    check_digest(tables.positions, row)
    return from_columns(StagingPosition, row)


def put_positions(connection: Connection, new_positions: Iterable[StagingPosition]) -> None:
    """Insert positions of partitions that are new to the ledger.

    Args:
        connection: The caller's transaction.
        new_positions: Positions to insert; none of their partitions may be in the ledger.
    """
    if rows := [with_digest(tables.positions, dataclasses.asdict(p)) for p in new_positions]:
        connection.execute(insert(tables.positions), rows)


def _change_positions(
    connection: Connection, *where: ColumnElement[bool], **values: str | int | None
) -> int:
    table = tables.positions
    found = connection.execute(select(table).where(*where)).mappings().all()
    for row in found:
        check_digest(table, row)
    update_rows(connection, table, [(row, values) for row in found])
    return len(found)


def begin_positions(database: Database, lease: Lease, wanted: Collection[StagingPosition]) -> None:
    """Insert positions of new partitions; positions of known partitions are left unchanged.

    Args:
        database: The ledger.
        lease: Lease of the shard's consumer.
        wanted: Positions of all partitions that should be in the ledger.

    Raises:
        TopicReplaced: The ledger has another id for a topic, or another cluster, so its offsets
            refer to other records.
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    with database.transaction(lease) as connection:
        clusters = set(
            connection.execute(select(tables.positions.c.cluster_id).distinct()).scalars()
        )
        if other := clusters - {p.cluster_id for p in wanted}:
            raise TopicReplaced(
                f"the ledger's positions are of the cluster {', '.join(sorted(other))}, and "
                "kafka.central is another cluster; set it "
                "back, or begin a new ledger and root"
            )
        for p in wanted:
            of_topic = (
                tables.positions.c.cluster_id == p.cluster_id,
                tables.positions.c.topic == p.topic,
            )
            known = [
                decode_position(row)
                for row in connection.execute(select(tables.positions).where(*of_topic)).mappings()
            ]
            if any(k.topic_id != p.topic_id for k in known):
                raise TopicReplaced(
                    f"topic {p.topic} has id {p.topic_id}, the ledger remembers "
                    f"{known[0].topic_id}: it was deleted and "
                    "recreated, and what it held may be missing. Restore the old topic, or "
                    "have an operator decide"
                )
            if not any(k.partition == p.partition for k in known):
                put_positions(connection, [p])


def skip_expired(
    database: Database,
    lease: Lease,
    to_edge_topic: Callable[[str], str],
    starts: Mapping[StagingPosition, int],
) -> None:
    """Advance positions to the log start if retention deleted records before they were staged.

    The skipped offsets are recorded as a gap of the topic.

    Args:
        database: The ledger.
        lease: Lease of the shard's consumer.
        to_edge_topic: Maps a central topic name to its name at the edge.
        starts: Log start offset of each position.

    Raises:
        StaleDriver: Another process has taken over the lease, or a position has moved.
    """
    passed = {p: start for p, start in starts.items() if start > p.next_offset}
    if passed:
        with database.transaction(lease) as connection:
            _compare_and_set(connection, [(p, p.moved_to(start)) for p, start in passed.items()])
            put_gaps(
                connection,
                [expired_gap(to_edge_topic(p.topic), p, start) for p, start in passed.items()],
            )


def restart_truncated_logs(
    database: Database,
    lease: Lease,
    to_edge_topic: Callable[[str], str],
    starts: Mapping[StagingPosition, int],
    now_ms: int,
) -> None:
    """Restart staging of logs that end before their positions because they lost records.

    Topics of events and reports are staged again from the log start: known ids are dropped as
    duplicates, and promises reveal missing events. Their gap is recorded as accepted; it marks the
    offsets as invalid for a ledger rebuild. Audit topics keep their position, because settled
    promises are identified by offset; a gap holds every type until an override accepts it.

    Args:
        database: The ledger.
        lease: Lease of the shard's consumer.
        to_edge_topic: Maps a central topic name to its name at the edge.
        starts: Log start offset of each affected position.
        now_ms: Current time, Unix milliseconds.

    Raises:
        StaleDriver: Another process has taken over the lease, or a position has moved.
    """
    again = {p: start for p, start in starts.items() if to_edge_topic(p.topic) != AUDIT}
    held = starts.keys() - again.keys()
    hold_short_audit_logs(database, lease, held)
    if known := [p for p in held if p.leader_epoch is not None]:
        with database.transaction(
            lease
        ) as connection:  # its epoch has been compared; what comes is read on
            _compare_and_set(connection, [(p, p.moved_to(p.next_offset)) for p in known])
    if not again:
        return
    for p, start in again.items():
        _LOG.error(
            "topic %s partition %d was staged to offset %d, and its log ends before: it lost "
            "records. It is staged again from "
            "offset %d; `hourmark mirror verify` names what is missing, "
            "docs/runbooks/mirror-target-truncated.md brings it back",
            p.topic,
            p.partition,
            p.next_offset,
            start,
        )
    with database.transaction(lease) as connection:
        _compare_and_set(connection, [(p, p.moved_to(start)) for p, start in again.items()])
        gaps = [
            truncated_gap(to_edge_topic(p.topic), p)
            for p in again
            if to_edge_topic(p.topic) not in CONTROL
        ]
        put_gaps(
            connection,
            [
                dataclasses.replace(gap, accepted_at_ms=now_ms, reason="staged again")
                for gap in gaps
            ],
        )


def hold_short_audit_logs(
    database: Database, lease: Lease, truncated_positions: Collection[StagingPosition]
) -> None:
    """Record a gap for each audit partition whose log ends before its position.

    The gap holds every type until an override accepts it. Gaps that are already open are not
    repeated.

    Args:
        database: The ledger.
        lease: Lease under which the ledger is changed.
        truncated_positions: Positions of the audit partitions.
    """
    known = open_gaps(database)
    if gaps := [gap for p in truncated_positions if (gap := truncated_gap(AUDIT, p)) not in known]:
        with database.transaction(lease) as connection:
            put_gaps(connection, gaps)


def truncated_gap(topic: str, position: StagingPosition) -> OffsetGap:
    """Return an open gap for a log that ends before the position.

    Args:
        topic: Name of the topic at its edge.
        position: StagingPosition in the central topic.
    """
    what = (
        f"topic {position.topic} partition {position.partition}: it was staged to offset {position.next_offset}, "
        "and its log lost records before"
    )
    return OffsetGap(topic=topic, accepted_at_ms=None, what=what, lost_end=True)


def expired_gap(topic: str, position: StagingPosition, end: int) -> OffsetGap:
    """Return an open gap for offsets that retention deleted before they were staged.

    Args:
        topic: Name of the topic at its edge.
        position: StagingPosition in the central topic; the first missing offset.
        end: First offset that is available.
    """
    what = (
        f"topic {position.topic} partition {position.partition}: offsets [{position.next_offset}, {end}) are lost "
        "to retention"
    )
    return OffsetGap(topic=topic, accepted_at_ms=None, what=what, lost_end=False)


def check_topic_ids(database: Database, infos: Iterable[TopicInfo]) -> None:
    """Check that central topics have the topic ids that the ledger knows.

    Args:
        database: The ledger.
        infos: Topics of the central cluster; topics unknown to the ledger are accepted.

    Raises:
        TopicReplaced: A topic has another id, so it was deleted and recreated.
    """
    known = dict(
        database.fetch(select(tables.positions.c.topic, tables.positions.c.topic_id)).all()
    )
    for info in infos:
        if known.get(info.name, info.topic_id) != info.topic_id:
            raise TopicReplaced(
                f"topic {info.name} has id {info.topic_id} now, the ledger stages "
                f"{known[info.name]}: it was deleted and "
                "recreated on the central cluster. Nothing closes until an operator has decided"
            )


def type_shards(database: Database) -> dict[str, str]:
    """Return the shard that stages each event type, by type name."""
    return dict(database.fetch(select(tables.frontiers.c.type, tables.frontiers.c.shard)).all())


def shards(database: Database) -> frozenset[str]:
    """Return all shards that have types or positions, including the default one.

    The default shard stages the control topics.
    """
    found = database.fetch(
        union(select(tables.frontiers.c.shard), select(tables.positions.c.shard))
    ).scalars()
    return frozenset({DEFAULT_SHARD, *found})


def move_to_shards(database: Database, lease: Lease, shards: Mapping[str, str]) -> None:
    """Move topics to other shards.

    Only the consumer that stages the topics may call this, between two batches.

    Args:
        database: The ledger.
        lease: Lease of the shard's consumer.
        shards: New shard of each central topic.

    Raises:
        StaleDriver: Another process has taken over the lease; nothing was changed.
    """
    with database.transaction(lease) as connection:
        for topic, shard in shards.items():
            _change_positions(connection, tables.positions.c.topic == topic, shard=shard)


def skip_unreadable(
    database: Database, to_edge_topic: Callable[[str], str], error: ReadError, end: int
) -> OffsetGap:
    """Advance a blocked partition to an offset, and return the skipped offsets as a gap.

    The gap holds the topic's type, or every type for a control topic, until an override accepts it.

    Args:
        database: The ledger.
        to_edge_topic: Maps a central topic name to its name at the edge.
        error: The read error that blocks the partition.
        end: Next offset to stage.

    Raises:
        UsageError: The partition is no longer blocked at that offset; nothing was changed.
    """
    rows = tables.positions
    what = (
        f"topic {error.topic} partition {error.partition}: offsets [{error.offset}, {end}) "
        "could not be read, and an operator "
        "skipped them"
    )
    gap = OffsetGap(
        topic=to_edge_topic(error.topic), accepted_at_ms=None, what=what, lost_end=False
    )
    with database.transaction() as connection:
        delete_read_error(connection, error)
        here = (
            rows.c.topic == error.topic,
            rows.c.partition == error.partition,
            rows.c.next_offset == error.offset,
        )
        if (
            _change_positions(
                connection, *here, next_offset=end, leader_epoch=None, epoch_next=None
            )
            != 1
        ):
            raise UsageError(
                f"topic {error.topic} partition {error.partition} is not at offset "
                f"{error.offset}; ask again"
            )
        put_gaps(connection, [gap])
    return gap


def commit_batch(
    database: Database,
    lease: Lease,
    batch: StagedBatch,
    unread: Sequence[ReadError] = (),
    *,
    now_ms: int = 0,
) -> list[ReadError]:
    """Commit a staged batch: advance its positions and insert its files, groups and reports.

    Nothing else advances positions in normal operation. Position, files and read errors change in
    one transaction.

    Args:
        database: The ledger.
        lease: Lease of the shard's consumer.
        batch: The batch.
        unread: Partitions that could not be read further.
        now_ms: Current time, Unix milliseconds.

    Returns:
        The read errors that are new: with another offset than was known.

    Raises:
        StaleDriver: Another process has taken over the lease, or a position is not where the batch started; nothing
            was changed.
    """
    with database.transaction(lease) as connection:
        moved = list(zip(batch.starts, batch.ends, strict=True))
        assert all(end.next_offset >= start.next_offset for start, end in moved), (
            "a batch cannot end before it begins"
        )
        _compare_and_set(connection, moved, keep_epochs=True)
        put_staged(connection, batch)
        put_set_aside(connection, batch.set_aside, now_ms)
        put_reports(connection, batch.reports)
        clear_passed_errors(
            connection, {end.topic_partition: end.next_offset for end in batch.ends}
        )
        return put_errors(connection, unread)


def put_staged(connection: Connection, batch: StagedBatch) -> None:
    """Insert the files and groups of a staged batch in the caller's transaction.

    The groups are not assigned to a bucket yet; a freeze does that.

    Args:
        connection: The caller's transaction.
        batch: The batch; its positions and reports are not written.
    """
    file_ids = {f.path: _insert_file(connection, batch.folder, f) for f in batch.files}
    for table, groups in ((tables.groups, batch.groups), (tables.audit_groups, batch.audit_groups)):
        if groups:
            connection.execute(
                insert(table),
                [{"file_id": file_ids[g.path], **_group_row(table, g)} for g in groups],
            )


def _group_row(table: Table, g: StagedGroup | AuditGroup) -> dict[str, Any]:
    value_sum = None if g.value_sum is None else to_signed(g.value_sum)
    row = to_columns(g, low64_sum=to_signed(g.low64_sum), value_sum=value_sum)
    path = row.pop("path")
    if isinstance(g, StagedGroup):
        row["schema_ids"] = json.dumps(g.schema_ids)
    else:
        row["site"] = None if g.site == FIRST_SITE else g.site
    return with_digest(table, row, path)


def _compare_and_set(
    connection: Connection,
    moved: Sequence[tuple[StagingPosition, StagingPosition]],
    *,
    keep_epochs: bool = False,
) -> None:
    # With keep_epochs, an end without epoch_next keeps the epoch: no record was staged. An end with
    # epoch_next but without an epoch clears it: the leader of the last record is unknown, and with
    # the old epoch a reader would report a truncated log.
    topic_ids = sorted({start.topic_id for start, _ in moved})
    of_clusters = tables.positions.c.cluster_id.in_({start.cluster_id for start, _ in moved})
    rows = select_by_names(
        connection,
        select(tables.positions).where(of_clusters),
        tables.positions.c.topic_id,
        topic_ids,
    )
    known = {(row["cluster_id"], row["topic_id"], row["partition"]): row for row in rows}
    changes = []
    for start, end in moved:
        key = (start.cluster_id, start.topic_id, start.partition)
        assert key == (end.cluster_id, end.topic_id, end.partition)
        row = known.get(key)
        if row is None or row["next_offset"] != start.next_offset:
            raise StaleDriver(
                f"topic {start.topic} partition {start.partition}: the ledger is not at offset "
                f"{start.next_offset}, where this "
                "batch began; the batch is discarded. Start the driver again: it continues from "
                "the ledger"
            )
        check_digest(tables.positions, row)
        at: dict[str, int | None] = {"next_offset": end.next_offset}
        if not (keep_epochs and end.epoch_next is None):
            at |= {"leader_epoch": end.leader_epoch, "epoch_next": end.epoch_next}
        changes.append((row, at))
    update_rows(connection, tables.positions, changes)


def _insert_file(connection: Connection, folder: str, file: StagedFile) -> int:
    observed_from_ms, observed_to_ms = file.observed_ms or (None, None)
    row = {
        "path": file.path,
        "batch": folder,
        "kind": file.kind,
        "rows": file.rows,
        "compared": False,
        "spans": zstandard.compress(json.dumps([s.to_list() for s in file.spans]).encode()),
        "observed_from_ms": observed_from_ms,
        "observed_to_ms": observed_to_ms,
    }
    key = connection.execute(
        insert(tables.staged_files).values(with_digest(tables.staged_files, row))
    ).inserted_primary_key
    assert key is not None
    return int(key[0])
