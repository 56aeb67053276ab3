"""The tables of the ledger.

Hours are Unix seconds of the bucket's start. Sums are modulo 2^64, stored as signed 64-bit
integers. Paths are relative to the storage root. JSON columns hold values that are only read as a
whole. The revisions in `migrations` create the tables, so every change here needs a revision there
(until the first release, `versions/v2.py` creates the tables as defined here).
"""

from __future__ import annotations

import functools
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
)

metadata = MetaData()

DIGEST: Final = "digest"  # the column; see `digests`
CHECKED_WHEN_READ: Final = (
    "checked when read"  # a table that grows with history: no start of a driver reads all of it
)
UNDIGESTED: Final = "undigested"
# a column that older rows do not have in their digest: it counts only if it is not null
LATER: Final = "later"


# Columns without nulls, as nearly all are.
_key = functools.partial(Column, primary_key=True)
_text = functools.partial(Column, type_=Text, nullable=False)
_number = functools.partial(Column, type_=BigInteger, nullable=False)
_bytes = functools.partial(Column, type_=LargeBinary, nullable=False)
_flag = functools.partial(Column, type_=Boolean, nullable=False)
# Row ids; SQLite assigns ids automatically only for the type INTEGER, which has 64 bits
# there.
_ROW_ID: Final = BigInteger().with_variant(Integer, "sqlite")


def _later(name: str, kind: type[Text] | type[BigInteger] = Text) -> Column[Any]:
    # Older versions of the ledger do not have the column; null means unknown, or the first site.
    return Column(name, kind, info={LATER: True})


def _row_id() -> Column[int]:
    return _key("id", _ROW_ID, autoincrement=True, info={UNDIGESTED: True})


def _of_file() -> Column[int]:
    # The digest of a group covers the file's path instead.
    return Column("file_id", ForeignKey("staged_files.id"), nullable=False, info={UNDIGESTED: True})


meta = Table("meta", metadata, _key("key", Text), _text("value"))

leases = Table("leases", metadata, _key("name", Text), _number("epoch"))

positions = Table(
    "positions",
    metadata,
    _key("cluster_id", Text),
    _key("topic_id", Text),
    _key("partition", Integer),
    _text("topic"),
    _text("shard"),
    _number("next_offset"),
    _later(
        "leader_epoch", BigInteger
    ),  # of the last record that was staged, and the offset after that record (KIP-320)
    _later("epoch_next", BigInteger),
    _bytes(DIGEST),
)

# `batch` is the folder that holds it; `spans` what it was staged from, so that an unreadable one
# can be staged again.
staged_files = Table(
    "staged_files",
    metadata,
    _row_id(),
    _text("path", unique=True),
    _text("batch"),
    _text("kind"),  # "events" or "audit"
    _number("rows"),
    _bytes("spans"),  # zstandard of a JSON list of `model.OffsetSpan`
    Column(
        "observed_from_ms", BigInteger
    ),  # least and greatest `observed_at` of the ranges of an audit file
    Column("observed_to_ms", BigInteger),
    _flag("compared", info={UNDIGESTED: True}),  # an audit file, with all others (`conflicts`)
    _bytes(DIGEST),
    Index("staged_files_by_batch", "batch"),
    Index("staged_files_by_observed", "kind", "compared", "observed_to_ms"),
)

# A group of events belongs to no bucket until a freeze lists it: `listed_hour` is then the bucket's
# hour.
groups = Table(
    "staged_groups",
    metadata,
    _row_id(),
    _of_file(),
    _text("type"),
    _number("hour"),
    _number("rows"),
    _number("bytes"),
    _number("low64_sum"),
    _later(
        "value_sum", BigInteger
    ),  # the sum of the value hashes of its rows (`hourmark.avro.value_hash`)
    _text("schema_ids"),  # JSON list
    _number("first_row"),  # its rows are [first_row, first_row + rows) of the file
    _bytes("first_id"),  # least and greatest event id, 16 bytes
    _bytes("last_id"),
    Column(
        "listed_hour", BigInteger, info={UNDIGESTED: True}
    ),  # set for thousands of rows at once; a seal has the sums of its rows
    _bytes(DIGEST),
    Index("staged_groups_by_file", "file_id"),
    Index("staged_groups_by_listing", "type", "listed_hour", "hour"),
)

# Promises of one type and hour in one staged file of audit records, with the span of central
# offsets they come from.
audit_groups = Table(
    "audit_groups",
    metadata,
    _row_id(),
    _of_file(),
    _text("type"),
    _number("hour"),
    _number("rows"),
    _number("first_offset"),
    _number("last_offset"),
    _number("promised"),  # sum of the promised counts
    _number("low64_sum"),  # sum of the promised sums
    _later("value_sum", BigInteger),  # sum of the promised checksums
    _later("unchecked", BigInteger),  # promised events without a checksum; null: all of them
    _later("site"),  # whose audit topic; null: the first one's
    _bytes(DIGEST),
    Index("audit_groups_by_file", "file_id"),
    Index("audit_groups_by_hour", "type", "hour"),
    Index(
        "audit_groups_by_offset", "type", "last_offset"
    ),  # late promises: the newest, of whatever hour
)

frontiers = Table(
    "frontiers",
    metadata,
    _key("type", Text),
    _number("first_hour"),
    _number("hour"),
    _text("state"),
    _text("shard"),  # as declared: whose query stages the type
    _text("sources"),  # JSON list: the declared sources that may carry the type
    _number(
        "settled_next"
    ),  # central audit offset of the first site: promises below it of hours < `hour` are kept
    Column("seal", Text),  # JSON of `model.Seal`, from sealed on
    Column("alarm", Text),  # JSON of the findings of the last proof that failed, or null
    _later("settled_further"),  # JSON: the same as settled_next, by further site
    _later("backfilled_hour", BigInteger),  # the newest closed hour before first_hour
    _bytes(DIGEST),
)

buckets = Table(
    "buckets",
    metadata,
    _key("type", Text),
    _key("hour", BigInteger),
    _text("grade"),
    _text("manifest"),  # the content of `_SUCCESS`
    _number("closed_at_ms"),
)

# Buckets of older days, a row for each type and day (`ledger.bucket_rows`).
bucket_days = Table(
    "bucket_days",
    metadata,
    _key("type", Text),
    _key("day", BigInteger),  # its start, UTC
    _number("first_hour"),
    _number("last_hour"),
    _number("hours"),
    _bytes("content"),  # zstandard of an index and manifests
    _bytes(DIGEST),
    Index("bucket_days_by_day", "day"),  # hours of all types
    info={CHECKED_WHEN_READ: True},
)

# Which buckets hold late events of an hour: one row for each such pair.
late_hours = Table(
    "late_hours",
    metadata,
    _key("type", Text),
    _key("origin", BigInteger),  # the events' hour
    _key("hour", BigInteger),  # of the bucket
    _bytes(DIGEST),
    info={CHECKED_WHEN_READ: True},
)

# A range has two audit records that differ, and one of them names this type and hour: it closes by
# an override alone.
conflicts = Table(
    "conflicts",
    metadata,
    _key("type", Text),
    _key(
        "hour", BigInteger
    ),  # that is held: of what the record names, or the one open when it was found
    _key("range_id", LargeBinary),
    _text("what"),
    _number("found_at_ms"),
    _bytes(DIGEST),
)

# Listed rows that no audit record had promised when their bucket was sealed: they settle a promise
# that comes later.
unaudited = Table(
    "unaudited",
    metadata,
    _key("type", Text),
    _key("hour", BigInteger),  # of the bucket that lists them
    _text("path"),
    _number("rows"),
    _number("audit_next"),  # of its seal: what settles them lies at or past this central offset
    _number("sealed_at_ms"),
    Column("audit_further", Text),  # JSON: the same as audit_next, by further site
)

# Runs of rows of an index file, each the sorted ids of some of a closed bucket: a cache that is
# rebuilt from the bucket.
id_indexes = Table(
    "id_indexes",
    metadata,
    _key("path", Text),
    _key("first_row", BigInteger),
    _text("type"),
    _number("hour"),  # of the bucket
    _number("rows"),
    _number("bytes"),
    Index("id_indexes_by_bucket", "type", "hour"),
)

# An operator's order to close the type's frontier hour as `forced`, whatever is missing.
overrides = Table(
    "overrides",
    metadata,
    _key("type", Text),
    _number("hour"),
    _text("reason"),
    _text("requested_by"),
    _number("requested_at_ms"),
)

# What each frontier hour waits for, as of the closer's last poll: for `bucket why`.
blockers = Table(
    "blockers",
    metadata,
    _key("type", Text),
    _number("hour"),
    _text("phase"),
    _text("what"),  # JSON list
    _number("since_ms"),
)

# Records of event topics that cannot be in a bucket (`ledger.set_aside`). One row for those that
# staging found in one piece of a partition for one reason; each row is counted in one bucket's
# manifest.
set_aside = Table(
    "set_aside",
    metadata,
    _key("topic", Text),
    _key("topic_id", Text),
    _key("partition", Integer, autoincrement=False),
    _key("offset", BigInteger, autoincrement=False),  # the first; a record has one reason
    _number("last_offset"),
    _number("records"),
    _bytes("offsets"),  # zstandard of a JSON list
    _text("type"),
    _text("reason"),
    _number("found_at_ms"),
    Column(
        "listed_hour", BigInteger, info={UNDIGESTED: True}
    ),  # of the bucket whose manifest counts it; null: not yet
    Column(
        "reviewed_at_ms", BigInteger, info={UNDIGESTED: True}
    ),  # when an operator marked it as reviewed
    _bytes(DIGEST),
    Index("set_aside_by_listing", "type", "listed_hour"),
)

# Partitions of the central cluster that could not be read when they were tried last
# (`ledger.read_errors`).
read_errors = Table(
    "read_errors",
    metadata,
    _key("topic", Text),
    _key("partition", Integer, autoincrement=False),
    _number("offset"),  # the next one to read
    _text("reason"),
    _number("since_ms"),
    _number("tries"),
    _number("again_at_ms"),
)

reporters = Table(
    "reporters",
    metadata,
    _key("host_id", Text),
    _key("source", Text),
    _text("host_name"),
    _text("kind"),
    _text("incarnation"),
    _number("sequence"),
    _number("received_at_ms"),
    Column("caught_up_at_ms", BigInteger),
    _number("pending_bytes"),
    _number("lost_bytes"),
    _flag("goodbye"),
    _number("heard_at_ms"),
    _flag("waived"),  # by a bucket that timed out: not awaited until it reports again
    Column("unknown_losses", BigInteger, nullable=False, server_default="0"),
    Column(
        "unrepeatable", Boolean, nullable=False, server_default=false()
    ),  # its senders cannot send data again
)

# What reports added to a source's losses. The lines were written between `from_ms`, up to which the
# source had claimed to be read, and `to_ms`, when the report was received.
host_losses = Table(
    "host_losses",
    metadata,
    _row_id(),
    _text("host_id"),
    _text("source"),
    _number("from_ms"),
    _number("to_ms"),
    _number("lost_bytes"),
    _number("unknown"),
)

# Rules revisions, as the topic `hourmark.types` has them; a key's digest is of its value.
rules = Table("rules", metadata, _key("key", Text), _text("value"))

# What schema ids of the rules stand for, and those of buckets from before a rebuild.
schemas = Table(
    "schemas",
    metadata,
    _key("schema_id", Integer, autoincrement=False),
    _text("type"),
    _text("fingerprint"),
    _text("schema"),
    _bytes(DIGEST),
)

# Where the mirror stood at the last check: the edge's log start must never pass it before the next
# one.
edge_checks = Table(
    "edge_checks",
    metadata,
    _key("topic", Text),
    _key("partition", Integer),
    _text("topic_id"),
    _number("mirror_next"),
    _number("checked_at_ms"),
)

# Offset gaps that the ledger alone remembers, and those that an override accepted
# (`hourmark_etl.ledger.partitions.offset_gaps`).
gaps = Table(
    "offset_gaps",
    metadata,
    _row_id(),
    _text("topic"),  # at the edge
    Column("type", Text),  # the only type that it concerns; null: all types of the topic
    _text("what"),
    Column("accepted_at_ms", BigInteger),
    _text("reason"),
    Column(
        "lost_end", Boolean
    ),  # whether the topic's log has lost its end; null in rows of before revision 6
)
