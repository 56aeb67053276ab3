"""Leader epochs, checksums of values, set-aside records, unreadable partitions, packed buckets."""

from __future__ import annotations

import json
from typing import Final

import zstandard
from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Integer,
    LargeBinary,
    RowMapping,
    Table,
    Text,
    inspect,
    select,
    text,
    update,
)

from hourmark.records.hours import Hour
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.bucket_rows import make_late_hour_rows, put_late_hours
from hourmark_etl.ledger.digests import with_digest

revision = "6"
down_revision = "5"
branch_labels = None
depends_on = None

_COLUMNS: Final = (
    ("positions", "leader_epoch", BigInteger),
    ("positions", "epoch_next", BigInteger),
    ("staged_groups", "value_sum", BigInteger),
    ("audit_groups", "value_sum", BigInteger),
    ("audit_groups", "unchecked", BigInteger),
    ("offset_gaps", "lost_end", Boolean),
)
_SPAN_FIELDS: Final = 5  # of a span without leader epochs


def upgrade() -> None:
    # A ledger that revision 2 has just created has everything already. In rows of older versions,
    # null means unknown.
    there = inspect(op.get_bind())
    for table, name, kind in _COLUMNS:
        if name not in {column["name"] for column in there.get_columns(table)}:
            op.add_column(table, Column(name, kind))
    if not there.has_table("set_aside"):
        op.create_table(
            "set_aside",
            Column("topic", Text, primary_key=True),
            Column("topic_id", Text, primary_key=True),
            Column("partition", Integer, primary_key=True, autoincrement=False),
            Column("offset", BigInteger, primary_key=True, autoincrement=False),
            Column("last_offset", BigInteger, nullable=False),
            Column("records", BigInteger, nullable=False),
            Column("offsets", LargeBinary, nullable=False),
            Column("type", Text, nullable=False),
            Column("reason", Text, nullable=False),
            Column("found_at_ms", BigInteger, nullable=False),
            Column("listed_hour", BigInteger),
            Column("reviewed_at_ms", BigInteger),
            Column("digest", LargeBinary, nullable=False),
        )
        op.create_index("set_aside_by_listing", "set_aside", ["type", "listed_hour"])
    if not there.has_table("bucket_days"):
        op.create_table(
            "bucket_days",
            Column("type", Text, primary_key=True),
            Column("day", BigInteger, primary_key=True),
            Column("first_hour", BigInteger, nullable=False),
            Column("last_hour", BigInteger, nullable=False),
            Column("hours", BigInteger, nullable=False),
            Column("content", LargeBinary, nullable=False),
            Column("digest", LargeBinary, nullable=False),
        )
        op.create_index("bucket_days_by_day", "bucket_days", ["day"])
    if not there.has_table("late_hours"):
        op.create_table(
            "late_hours",
            Column("type", Text, primary_key=True),
            Column("origin", BigInteger, primary_key=True),
            Column("hour", BigInteger, primary_key=True),
            Column("digest", LargeBinary, nullable=False),
        )
        _fill_late_hours()
    if there.has_table("quarantined"):
        op.drop_table("quarantined")  # its records are read again, and set aside
        op.execute(text("DELETE FROM blockers WHERE phase = 'quarantined'"))
    if not there.has_table("read_errors"):
        op.create_table(
            "read_errors",
            Column("topic", Text, primary_key=True),
            Column("partition", Integer, primary_key=True, autoincrement=False),
            Column("offset", BigInteger, nullable=False),
            Column("reason", Text, nullable=False),
            Column("since_ms", BigInteger, nullable=False),
            Column("tries", BigInteger, nullable=False),
            Column("again_at_ms", BigInteger, nullable=False),
        )


def _fill_late_hours() -> None:
    # Only manifests with late events are read. `hourmark ledger check` reports invalid ones.
    bind = op.get_bind()
    query = text(
        "SELECT hour, manifest FROM buckets WHERE type = :type AND manifest NOT LIKE :none"
    )
    for event_type in _types_in("buckets"):
        rows = []
        for hour_s, manifest in bind.execute(query, {"type": event_type, "none": '%"late": {}%'}):
            try:
                said = json.loads(manifest)
                rows += make_late_hour_rows(
                    event_type, Hour(hour_s, said["bucket_seconds"]), said["late"]
                )
            except (ValueError, KeyError, TypeError):
                continue
        put_late_hours(bind, rows)


def _types_in(table: str) -> list[str]:
    # Rows are read type by type, because a year of all types would not fit into memory. `table` is
    # a constant.
    return sorted(op.get_bind().execute(text(f"SELECT DISTINCT type FROM {table}")).scalars())  # noqa: S608


def _unpack_days() -> None:
    bind = op.get_bind()
    put_back = text(
        "INSERT INTO buckets (type, hour, grade, closed_at_ms, manifest) VALUES (:t, :h, "
        ":g, :c, :m)"
    )
    query = text("SELECT content FROM bucket_days WHERE type = :type ORDER BY day")
    for event_type in _types_in("bucket_days"):
        for content in bind.execute(query, {"type": event_type}).scalars():
            head, _, texts = zstandard.ZstdDecompressor().decompress(content).partition(b"\n")
            at, rows = 0, []
            for hour_s, grade, closed_at_ms, size in json.loads(head):
                manifest = texts[at : at + size].decode()
                at += size
                rows.append(
                    {"t": event_type, "h": hour_s, "g": grade, "c": closed_at_ms, "m": manifest}
                )
            bind.execute(put_back, rows)


def _forget_epochs_and_checksums() -> None:
    # Version 0.3.0 computes digests without the new columns.
    bind, paths = op.get_bind(), dict[int, str]()
    for row in _rows(tables.staged_files):
        paths[row["id"]] = row["path"]
        spans = json.loads(zstandard.decompress(row["spans"]))
        if any(len(span) > _SPAN_FIELDS for span in spans):
            shortened = json.dumps([span[:_SPAN_FIELDS] for span in spans]).encode()
            changed = with_digest(
                tables.staged_files, {**row, "spans": zstandard.compress(shortened)}
            )
            own = tables.staged_files.c
            new = {own.spans: changed["spans"], own.digest: changed["digest"]}
            bind.execute(update(tables.staged_files).where(own.id == row["id"]).values(new))
    for table in (tables.positions, tables.groups, tables.audit_groups):
        later = [name for of, name, _ in _COLUMNS if of == table.name]
        for row in _rows(table):
            if any(row[name] is not None for name in later):
                changed = with_digest(
                    table, {**row, **dict.fromkeys(later)}, paths.get(row.get("file_id", 0), "")
                )
                same = (column == row[column.name] for column in table.primary_key)
                bind.execute(update(table).where(*same).values(digest=changed["digest"]))


def _rows(table: Table) -> list[RowMapping]:
    # Only the columns that exist in this revision.
    there = {column["name"] for column in inspect(op.get_bind()).get_columns(table.name)}
    return list(
        op.get_bind()
        .execute(select(*(column for column in table.c if column.name in there)))
        .mappings()
    )


def downgrade() -> None:
    # Rows with values in dropped columns get the digests that revision 5 expects.
    _unpack_days()
    _forget_epochs_and_checksums()
    op.drop_table("bucket_days")
    op.drop_table("late_hours")
    op.drop_table("read_errors")
    op.drop_table("set_aside")
    op.create_table(
        "quarantined",
        Column("type", Text, primary_key=True),
        Column("topic", Text, nullable=False),
        Column("partition", Integer, nullable=False),
        Column("offset", BigInteger, nullable=False),
        Column("reason", Text, nullable=False),
        Column("quarantined_at_ms", BigInteger, nullable=False),
    )
    for table, name, _ in _COLUMNS:
        op.drop_column(table, name)
