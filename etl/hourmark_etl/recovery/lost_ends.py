"""Logs that lost their end while no driver looked, told by staged files that the ledger does not name.

An older copy of the ledger goes on behind what was staged since it was made. Where Kafka has lost the end of that too (one power
failure takes a disk of each), nothing is shorter than its positions, and others take the lost records' places unseen. The files
of what was staged stand still, and say how far that was.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping

from hourmark.kafka import Partition
from hourmark.topics import AUDIT
from hourmark_etl.ledger.batches import lost_behind
from hourmark_etl.ledger.database import Database, Lease
from hourmark_etl.ledger.offset_gaps import OffsetGap, all_gaps, put_gaps
from hourmark_etl.ledger.staged_files import folders
from hourmark_etl.model import Position, Span
from hourmark_etl.recovery.storage_scan import Key, batch_folders, read_notes
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.storage import Storage
from hourmark_etl.topics import Central, CentralTopics

_LOG = logging.getLogger(__name__)


def find_lost_ends(
    storage: Storage, database: Database, lease: Lease, central: Central, topics: CentralTopics, now_ms: int
) -> list[OffsetGap]:
    """Looked for once, before the closer's first step; what is found stands in the ledger. `topics`: of all types.

    Of promises the gap holds every type until an override accepts it. Of events, promises tell what is missing: the gap keeps
    the files, of which `hourmark ledger rebuild` lists what they hold.
    """
    reached = _reached(storage, database)
    live = {(info.topic_id, n): Partition(info.name, n) for info in central.topics(topics.all).values() for n in info.partitions}
    asked = {key: live[key] for key in reached.keys() & live.keys() if live[key].topic not in topics.hosts}
    ends = central.ends([*asked.values()], committed=False)
    cluster_id = central.cluster_id() if asked else ""
    known = {(gap.topic, gap.what) for gap in all_gaps(database)}
    found = []
    for key, p in sorted(asked.items(), key=lambda of: of[1]):
        if ends[p] < (to := reached[key].end):
            at = Position(cluster_id=cluster_id, topic_id=key[0], topic=p.topic, partition=p.partition, next_offset=to)
            gap = lost_behind(topics.at_edge(p.topic), at)
            if (gap.topic, gap.what) not in known:
                found.append(
                    gap if gap.topic == AUDIT else dataclasses.replace(gap, accepted_at_ms=now_ms, reason="kept in files")
                )
    if found:
        with database.transaction(lease) as connection:
            put_gaps(connection, found)
    for gap in found:
        _LOG.error(
            "%s, and this ledger does not know what was staged: is it an older copy? What staged files hold of it "
            "`hourmark ledger rebuild` lists", gap.what,
        )  # fmt: skip
    return found


def _reached(storage: Storage, database: Database) -> Mapping[Key, Span]:
    """By partition, the last span of files that stand in folders that the ledger does not name."""
    standing = batch_folders(storage)
    named, _ = folders(database)  # after the listing: a folder's commit may come in between
    ledger, _ = database.identity()
    found: dict[Key, Span] = {}
    for note in read_notes(storage, [folder for folder in standing if folder not in named]):
        for s in note.spans if isinstance(note, StagedNote) and note.ledger == ledger else ():
            key = s.topic_id, s.partition
            if key not in found or found[key].end < s.end:
                found[key] = s
    return found
