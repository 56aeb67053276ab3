"""The ledger of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = None
branch_labels = None
depends_on = None

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make all tables."""
    _make_books()
    _make_staging()
    _make_closing()


def _make_books() -> None:
    """The ledger itself, and who may write to it."""
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "schemas",
        sa.Column("schema_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("schema", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("schema_id"),
    )


def _make_staging() -> None:
    """What is staged, and who reports."""
    op.create_table(
        "positions",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("shard", sa.Text(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "topic_id", "partition"),
    )
    op.create_table(
        "staged_files",
        sa.Column("id", _ROW_ID, autoincrement=True, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("batch", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("spans", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("path"),
    )
    op.create_index("staged_files_by_batch", "staged_files", ["batch"], unique=False)
    op.create_table(
        "staged_groups",
        sa.Column("id", _ROW_ID, autoincrement=True, nullable=False),
        sa.Column("file_id", _ROW_ID, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("tail_sum", sa.BigInteger(), nullable=False),
        sa.Column("schema_ids", sa.Text(), nullable=False),
        sa.Column("first_row", sa.BigInteger(), nullable=False),
        sa.Column("first_id", sa.LargeBinary(), nullable=False),
        sa.Column("last_id", sa.LargeBinary(), nullable=False),
        sa.Column("listed_hour", sa.BigInteger(), nullable=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["file_id"],
            ["staged_files.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("staged_groups_by_file", "staged_groups", ["file_id"], unique=False)
    op.create_index("staged_groups_by_listing", "staged_groups", ["type", "listed_hour", "hour"], unique=False)
    op.create_table(
        "audit_groups",
        sa.Column("id", _ROW_ID, autoincrement=True, nullable=False),
        sa.Column("file_id", _ROW_ID, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("first_offset", sa.BigInteger(), nullable=False),
        sa.Column("last_offset", sa.BigInteger(), nullable=False),
        sa.Column("promised", sa.BigInteger(), nullable=False),
        sa.Column("tail_sum", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["file_id"],
            ["staged_files.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("audit_groups_by_file", "audit_groups", ["file_id"], unique=False)
    op.create_index("audit_groups_by_hour", "audit_groups", ["type", "hour"], unique=False)
    op.create_index("audit_groups_by_offset", "audit_groups", ["type", "last_offset"], unique=False)
    op.create_table(
        "set_aside",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("set_aside_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type"),
    )
    op.create_table(
        "reporters",
        sa.Column("host_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("host_name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("received_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("caught_up_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("pending_bytes", sa.BigInteger(), nullable=False),
        sa.Column("lost_bytes", sa.BigInteger(), nullable=False),
        sa.Column("goodbye", sa.Boolean(), nullable=False),
        sa.Column("heard_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("excused", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("host_id", "source"),
    )


def _make_closing() -> None:
    """What is closed, and what closing must remember."""
    op.create_table(
        "frontiers",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("first_hour", sa.BigInteger(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("shard", sa.Text(), nullable=False),
        sa.Column("sources", sa.Text(), nullable=False),
        sa.Column("settled_next", sa.BigInteger(), nullable=False),
        sa.Column("seal", sa.Text(), nullable=True),
        sa.Column("alarm", sa.Text(), nullable=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("type"),
    )
    op.create_table(
        "buckets",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("grade", sa.Text(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("closed_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type", "hour"),
    )
    op.create_table(
        "surplus",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("audit_next", sa.BigInteger(), nullable=False),
        sa.Column("sealed_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type", "hour"),
    )
    op.create_table(
        "id_indexes",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("first_row", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("path", "first_row"),
    )
    op.create_index("id_indexes_by_bucket", "id_indexes", ["type", "hour"], unique=False)
    op.create_table(
        "orders",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ordered_by", sa.Text(), nullable=False),
        sa.Column("ordered_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type"),
    )
    op.create_table(
        "waits",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type"),
    )
    op.create_table(
        "edge_checks",
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=False),
        sa.Column("mirror_next", sa.BigInteger(), nullable=False),
        sa.Column("checked_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic", "partition"),
    )
    op.create_table(
        "holes",
        sa.Column("id", _ROW_ID, autoincrement=True, nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=True),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("accepted_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
