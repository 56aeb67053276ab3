"""What the consumer commits: positions by compare-and-set, and the groups that were staged up to
them.
"""

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
from hourmark_etl.ledger.database import Database, Lease, rows_named
from hourmark_etl.ledger.digests import check, rewrite, with_digest
from hourmark_etl.ledger.offset_gaps import OffsetGap, open_gaps, put_gaps
from hourmark_etl.ledger.read_errors import ReadError, end_errors, forget_error, put_errors
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
    """Where each partition of the cluster is to be read from."""
    query = select(tables.positions).where(tables.positions.c.cluster_id == cluster_id)
    return [position_of(row) for row in database.ask(query).mappings()]


def positions_at(database: Database, partition: Partition) -> list[StagingPosition]:
    """Of all topics that this one's name ever stood for."""
    kept = tables.positions
    query = select(kept).where(
        kept.c.topic == partition.topic, kept.c.partition == partition.partition
    )
    return [position_of(row) for row in database.ask(query).mappings()]


def position_of(row: Mapping[Any, Any]) -> StagingPosition:
    """Of a whole row. DamagedRow if it is not as it was written."""
    check(tables.positions, row)
    return from_columns(StagingPosition, row)


def put_positions(connection: Connection, new: Iterable[StagingPosition]) -> None:
    """Add them."""
    if rows := [with_digest(tables.positions, dataclasses.asdict(p)) for p in new]:
        connection.execute(insert(tables.positions), rows)


def _change_positions(
    connection: Connection, *where: ColumnElement[bool], **values: str | int | None
) -> int:
    """Change those there are, and say how many."""
    table = tables.positions
    found = connection.execute(select(table).where(*where)).mappings().all()
    for row in found:
        check(table, row)
    rewrite(connection, table, [(row, values) for row in found])
    return len(found)


def begin_positions(database: Database, lease: Lease, wanted: Collection[StagingPosition]) -> None:
    """Add positions for partitions that are new to the ledger.

    TopicReplaced if the ledger knows the topic by another id, or another cluster: its offsets mean
    other records now.
    """
    with database.transaction(lease) as connection:
        clusters = set(
            connection.execute(select(tables.positions.c.cluster_id).distinct()).scalars()
        )
        if other := clusters - {p.cluster_id for p in wanted}:
            raise TopicReplaced(
                f"the ledger was staging from the cluster {', '.join(sorted(other))}, and "
                "kafka.central is another now; set it "
                "back, or begin a new ledger and root"
            )
        for p in wanted:
            of_topic = (
                tables.positions.c.cluster_id == p.cluster_id,
                tables.positions.c.topic == p.topic,
            )
            known = [
                position_of(row)
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


def pass_over(
    database: Database,
    lease: Lease,
    at_edge: Callable[[str], str],
    starts: Mapping[StagingPosition, int],
) -> None:
    """Go on at the logs' start offsets where those have passed what is to be staged; what lies
    between is a gap of its topic.

    `at_edge`: the name at its edge of a topic of the central cluster.
    """
    passed = {p: start for p, start in starts.items() if start > p.next_offset}
    if passed:
        with database.transaction(lease) as connection:
            _compare_and_set(connection, [(p, p.moved_to(start)) for p, start in passed.items()])
            put_gaps(
                connection,
                [lost_to_retention(at_edge(p.topic), p, start) for p, start in passed.items()],
            )


def begin_again(
    database: Database,
    lease: Lease,
    at_edge: Callable[[str], str],
    starts: Mapping[StagingPosition, int],
    now_ms: int,
) -> None:
    """These logs end before what was staged of them: they lost records, and nobody knows from where
    on others took their offsets.

    Events, and reports, are staged again from the log's start (`starts`): what is known is dropped
    by its id, and promises tell what is missing, so a gap of events holds nothing: it tells a
    ledger that is rebuilt that no offset in markers means anything there. Which promises there were
    nobody can tell: a gap holds every type, and the position stays, as settled promises are named
    by offsets. `at_edge`: as of `pass_over`.
    """
    again = {p: start for p, start in starts.items() if at_edge(p.topic) != AUDIT}
    held = starts.keys() - again.keys()
    hold_promises(database, lease, held)
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
        gaps = [lost_behind(at_edge(p.topic), p) for p in again if at_edge(p.topic) not in CONTROL]
        put_gaps(
            connection,
            [
                dataclasses.replace(gap, accepted_at_ms=now_ms, reason="staged again")
                for gap in gaps
            ],
        )


def hold_promises(database: Database, lease: Lease, shorter: Collection[StagingPosition]) -> None:
    """The logs of promises of these positions end before them: a gap holds every type, until an
    override accepts it.
    """
    known = open_gaps(database)
    if gaps := [gap for p in shorter if (gap := lost_behind(AUDIT, p)) not in known]:
        with database.transaction(lease) as connection:
            put_gaps(connection, gaps)


def lost_behind(topic: str, p: StagingPosition) -> OffsetGap:
    """That a log ended before the position; `topic`: its name at its edge."""
    what = (
        f"topic {p.topic} partition {p.partition}: it was staged to offset {p.next_offset}, "
        "and its log lost records before"
    )
    return OffsetGap(topic=topic, accepted_at_ms=None, what=what, lost_end=True)


def lost_to_retention(topic: str, p: StagingPosition, end: int) -> OffsetGap:
    """That offsets from the position to `end` are on neither side; `topic`: its name at its
    edge.
    """
    what = (
        f"topic {p.topic} partition {p.partition}: offsets [{p.next_offset}, {end}) are lost "
        "to retention"
    )
    return OffsetGap(topic=topic, accepted_at_ms=None, what=what, lost_end=False)


def check_other_topics(database: Database, infos: Iterable[TopicInfo]) -> None:
    """TopicReplaced if one of the central cluster's topics has another id than the one that is
    staged.
    """
    known = dict(database.ask(select(tables.positions.c.topic, tables.positions.c.topic_id)).all())
    for info in infos:
        if known.get(info.name, info.topic_id) != info.topic_id:
            raise TopicReplaced(
                f"topic {info.name} has id {info.topic_id} now, the ledger stages "
                f"{known[info.name]}: it was deleted and "
                "recreated on the central cluster. Nothing closes until an operator has decided"
            )


def type_shards(database: Database) -> dict[str, str]:
    """By type: the shard whose query is to stage it."""
    return dict(database.ask(select(tables.frontiers.c.type, tables.frontiers.c.shard)).all())


def shards(database: Database) -> frozenset[str]:
    """Every shard that has types, or topics not handed over yet, and the default one, which has the
    control topics.
    """
    found = database.ask(
        union(select(tables.frontiers.c.shard), select(tables.positions.c.shard))
    ).scalars()
    return frozenset({DEFAULT_SHARD, *found})


def hand_over(database: Database, lease: Lease, shards: Mapping[str, str]) -> None:
    """Leave topics to other shards (`shards`: topic → shard); only who stages them may, and between
    two of its batches.
    """
    with database.transaction(lease) as connection:
        for topic, shard in shards.items():
            _change_positions(connection, tables.positions.c.topic == topic, shard=shard)


def skip_unreadable(
    database: Database, at_edge: Callable[[str], str], error: ReadError, end: int
) -> OffsetGap:
    """Go on at offset `end` of a partition that cannot be read; what lies before it is a gap of its
    topic.

    Returns the gap. It holds the type, or every type for a topic of promises or reports, until an
    override accepts it. UsageError, with nothing changed, if the partition is no longer held at
    that offset.
    """
    rows = tables.positions
    what = (
        f"topic {error.topic} partition {error.partition}: offsets [{error.offset}, {end}) "
        "could not be read, and an operator "
        "skipped them"
    )
    gap = OffsetGap(topic=at_edge(error.topic), accepted_at_ms=None, what=what, lost_end=False)
    with database.transaction() as connection:
        forget_error(connection, error)
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
    """Move offsets on, the only way that they do, with all that was staged or set aside up to them.

    `unread`: partitions that could not be read further. Returns those of them that were not known
    to be unreadable from there.

    StaleDriver, with nothing changed, if a position is not where the batch began.
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
        end_errors(connection, {end.topic_partition: end.next_offset for end in batch.ends})
        return put_errors(connection, unread)


def put_staged(connection: Connection, batch: StagedBatch) -> None:
    """Name its files and groups, which no bucket lists yet."""
    file_ids = {f.path: _insert_file(connection, batch.folder, f) for f in batch.files}
    for table, groups in ((tables.groups, batch.groups), (tables.audit_groups, batch.audit_groups)):
        if groups:
            connection.execute(
                insert(table),
                [{"file_id": file_ids[g.path], **_group_row(table, g)} for g in groups],
            )


def _group_row(table: Table, g: StagedGroup | AuditGroup) -> dict[str, Any]:
    """What the ledger keeps of the group itself: all but its row number, its file's and its
    listing.
    """
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
    """Move positions (from, to), in as few calls as for one.

    StaleDriver where the ledger is not where one begins.

    `keep_epochs`: where `to` has no `epoch_next`, no record came, and the last one is the same as
    before. Where it has one and no epoch, records came and their leader is not known: with the
    epoch before, a reader would take them for another log's.
    """
    topic_ids = sorted({start.topic_id for start, _ in moved})
    of_clusters = tables.positions.c.cluster_id.in_({start.cluster_id for start, _ in moved})
    rows = rows_named(
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
                "batch began; the batch is discarded. Start the driver again: it goes on from "
                "the ledger"
            )
        check(tables.positions, row)
        at: dict[str, int | None] = {"next_offset": end.next_offset}
        if not (keep_epochs and end.epoch_next is None):
            at |= {"leader_epoch": end.leader_epoch, "epoch_next": end.epoch_next}
        changes.append((row, at))
    rewrite(connection, tables.positions, changes)


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
