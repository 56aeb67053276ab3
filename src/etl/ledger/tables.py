"""The tables. Hours are Unix seconds of the bucket's start; sums are modulo 2^64, kept as signed 64-bit integers.

Paths of files are relative to the storage root. JSON columns hold what is only read as a whole. Tables are made by the revisions
in `migrations`: what changes here changes there too (until the first release, `versions/v2.py` makes what stands here).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

DIGEST: Final = "digest"  # the column; see `digests`
UNDIGESTED: Final = "undigested"
_NUMBER: Final = {UNDIGESTED: True}  # of a row or a file: groups have the file's path in their digest instead


def _digest() -> Column[bytes]:
    return Column(DIGEST, LargeBinary, nullable=False)


# Row numbers; SQLite numbers rows by itself only where the type is INTEGER, which has 64 bits there.
_ROW_ID: Final = BigInteger().with_variant(Integer, "sqlite")

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

leases = Table("leases", metadata, Column("name", Text, primary_key=True), Column("epoch", BigInteger, nullable=False))

positions = Table(
    "positions",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("topic_id", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("shard", Text, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    _digest(),
)

# `batch` is the folder that holds it; `spans` what it was staged from, so that an unreadable one can be staged again.
staged_files = Table(
    "staged_files",
    metadata,
    Column("id", _ROW_ID, primary_key=True, autoincrement=True, info=_NUMBER),
    Column("path", Text, nullable=False, unique=True),
    Column("batch", Text, nullable=False),
    Column("kind", Text, nullable=False),  # "events" or "audit"
    Column("rows", BigInteger, nullable=False),
    Column("spans", LargeBinary, nullable=False),  # zstandard of a JSON list of `rows.Span`
    _digest(),
    Index("staged_files_by_batch", "batch"),
)

# A group of events belongs to no bucket until a freeze lists it: `listed_hour` is then the bucket's hour.
groups = Table(
    "staged_groups",
    metadata,
    Column("id", _ROW_ID, primary_key=True, autoincrement=True, info=_NUMBER),
    Column("file_id", ForeignKey("staged_files.id"), nullable=False, info=_NUMBER),
    Column("type", Text, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("tail_sum", BigInteger, nullable=False),
    Column("schema_ids", Text, nullable=False),  # JSON list
    Column("first_row", BigInteger, nullable=False),  # its rows are [first_row, first_row + rows) of the file
    Column("first_id", LargeBinary, nullable=False),  # least and greatest event id, 16 bytes
    Column("last_id", LargeBinary, nullable=False),
    Column("listed_hour", BigInteger, info={UNDIGESTED: True}),  # set by the thousand; a seal says what its rows add up to
    _digest(),
    Index("staged_groups_by_file", "file_id"),
    Index("staged_groups_by_listing", "type", "listed_hour", "hour"),
)

# Promises of one type and hour in one staged file of audit records, with the span of central offsets they come from.
audit_groups = Table(
    "audit_groups",
    metadata,
    Column("id", _ROW_ID, primary_key=True, autoincrement=True, info=_NUMBER),
    Column("file_id", ForeignKey("staged_files.id"), nullable=False, info=_NUMBER),
    Column("type", Text, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("first_offset", BigInteger, nullable=False),
    Column("last_offset", BigInteger, nullable=False),
    Column("promised", BigInteger, nullable=False),  # sum of the promised counts
    Column("tail_sum", BigInteger, nullable=False),  # sum of the promised sums
    _digest(),
    Index("audit_groups_by_file", "file_id"),
    Index("audit_groups_by_hour", "type", "hour"),
    Index("audit_groups_by_offset", "type", "last_offset"),  # late promises: the newest, of whatever hour
)

frontiers = Table(
    "frontiers",
    metadata,
    Column("type", Text, primary_key=True),
    Column("first_hour", BigInteger, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("shard", Text, nullable=False),  # as declared: whose query stages the type
    Column("sources", Text, nullable=False),  # JSON list: the declared sources that may carry the type
    Column("settled_next", BigInteger, nullable=False),  # central audit offset: promises below it of hours < `hour` are kept
    Column("seal", Text),  # JSON of `rows.Seal`, from sealed on
    Column("alarm", Text),  # JSON of the findings of the last proof that failed, or null
    _digest(),
)

buckets = Table(
    "buckets",
    metadata,
    Column("type", Text, primary_key=True),
    Column("hour", BigInteger, primary_key=True),
    Column("grade", Text, nullable=False),
    Column("manifest", Text, nullable=False),  # the content of `_SUCCESS`
    Column("closed_at_ms", BigInteger, nullable=False),
)

# Listed rows that no audit record had promised when their bucket was sealed: they settle a promise that comes later.
surplus = Table(
    "surplus",
    metadata,
    Column("type", Text, primary_key=True),
    Column("hour", BigInteger, primary_key=True),  # of the bucket that lists them
    Column("path", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("audit_next", BigInteger, nullable=False),  # of its seal: what settles them lies at or past this central offset
    Column("sealed_at_ms", BigInteger, nullable=False),
)

# Runs of rows of an index file, each the sorted ids of some of a closed bucket: a cache, behind it stands the bucket itself.
id_indexes = Table(
    "id_indexes",
    metadata,
    Column("path", Text, primary_key=True),
    Column("first_row", BigInteger, primary_key=True),
    Column("type", Text, nullable=False),
    Column("hour", BigInteger, nullable=False),  # of the bucket
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Index("id_indexes_by_bucket", "type", "hour"),
)

# An operator's word that the type's frontier hour closes as `forced`, whatever is missing.
orders = Table(
    "orders",
    metadata,
    Column("type", Text, primary_key=True),
    Column("hour", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("ordered_by", Text, nullable=False),
    Column("ordered_at_ms", BigInteger, nullable=False),
)

# What each frontier hour waits for, as the closer last saw it: for `bucket why`.
waits = Table(
    "waits",
    metadata,
    Column("type", Text, primary_key=True),
    Column("hour", BigInteger, nullable=False),
    Column("phase", Text, nullable=False),
    Column("what", Text, nullable=False),  # JSON list
    Column("since_ms", BigInteger, nullable=False),
)

# Types that are not staged for now, because a record on their topic cannot be: an alarm, until an operator resumes them.
set_aside = Table(
    "set_aside",
    metadata,
    Column("type", Text, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("set_aside_at_ms", BigInteger, nullable=False),
)

reporters = Table(
    "reporters",
    metadata,
    Column("host_id", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("host_name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("incarnation", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("received_at_ms", BigInteger, nullable=False),
    Column("caught_up_at_ms", BigInteger),
    Column("pending_bytes", BigInteger, nullable=False),
    Column("lost_bytes", BigInteger, nullable=False),
    Column("goodbye", Boolean, nullable=False),
    Column("heard_at_ms", BigInteger, nullable=False),
    Column("excused", Boolean, nullable=False),  # by a bucket that timed out: not awaited until it reports again
)

schemas = Table(
    "schemas",
    metadata,
    Column("schema_id", Integer, primary_key=True, autoincrement=False),
    Column("fingerprint", Text, nullable=False),
    Column("schema", Text, nullable=False),
)

# Where the mirror stood at the last check: the edge's log start must never pass it before the next one.
edge_checks = Table(
    "edge_checks",
    metadata,
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("topic_id", Text, nullable=False),
    Column("mirror_next", BigInteger, nullable=False),
    Column("checked_at_ms", BigInteger, nullable=False),
)

# Holes that the ledger alone remembers, and those that an order accepted (`etl.ledger.holes`).
holes = Table(
    "holes",
    metadata,
    Column("id", _ROW_ID, primary_key=True, autoincrement=True),
    Column("topic", Text, nullable=False),  # at the edge
    Column("type", Text),  # whose promises alone it concerns; null: as the topic says
    Column("what", Text, nullable=False),
    Column("accepted_at_ms", BigInteger),
    Column("reason", Text, nullable=False),
)
