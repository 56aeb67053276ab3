"""The tables. Hours are Unix seconds of the bucket's start; sums are modulo 2^64, kept as signed 64-bit integers.

`PATH` of a file is relative to the storage root. JSON columns hold what is only read as a whole.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, MetaData, Table, Text

SCHEMA_VERSION: Final = 1

metadata = MetaData()

meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

leases = Table("leases", metadata, Column("name", Text, primary_key=True), Column("epoch", BigInteger, nullable=False))

positions = Table(
    "positions",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("topic_id", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
)

staged_files = Table(
    "staged_files",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("path", Text, nullable=False, unique=True),
    Column("rows", BigInteger, nullable=False),
)

# A group of events belongs to no bucket until a freeze lists it: `listed_hour` is then the bucket's hour.
groups = Table(
    "staged_groups",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("file_id", ForeignKey("staged_files.id"), nullable=False),
    Column("type", Text, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("tail_sum", BigInteger, nullable=False),
    Column("schema_ids", Text, nullable=False),  # JSON list
    Column("listed_hour", BigInteger),
    Index("staged_groups_by_listing", "type", "listed_hour", "hour"),
)

# Promises of one type and hour in one staged file of audit records, with the span of central offsets they come from.
audit_groups = Table(
    "audit_groups",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("file_id", ForeignKey("staged_files.id"), nullable=False),
    Column("type", Text, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("first_offset", BigInteger, nullable=False),
    Column("last_offset", BigInteger, nullable=False),
    Index("audit_groups_by_hour", "type", "hour"),
)

frontiers = Table(
    "frontiers",
    metadata,
    Column("type", Text, primary_key=True),
    Column("first_hour", BigInteger, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("sources", Text, nullable=False),  # JSON list: the declared sources that may carry the type
    Column("settled_next", BigInteger, nullable=False),  # central audit offset: promises below it of hours < `hour` are kept
    Column("seal", Text),  # JSON of `rows.Seal`, from sealed on
    Column("alarm", Text),  # JSON of the findings of the last proof that failed, or null
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
