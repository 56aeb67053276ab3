"""Leader epochs of positions, checksums of values, records that were set aside, and partitions that cannot be read."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, Text, inspect, text

revision = "6"
down_revision = "5"
branch_labels = None
depends_on = None

_COLUMNS: Final = (
    ("positions", "leader_epoch"),
    ("positions", "epoch_next"),
    ("staged_groups", "value_sum"),
    ("audit_groups", "value_sum"),
    ("audit_groups", "unchecked"),
)


def upgrade() -> None:
    """Add what a ledger that revision 2 just made has already. Null stands for unknown in rows of older versions."""
    there = inspect(op.get_bind())
    for table, name in _COLUMNS:
        if name not in {column["name"] for column in there.get_columns(table)}:
            op.add_column(table, Column(name, BigInteger))
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
            Column("staged", Boolean, nullable=False),
            Column("found_at_ms", BigInteger, nullable=False),
            Column("listed_hour", BigInteger),
            Column("reviewed_at_ms", BigInteger),
            Column("digest", LargeBinary, nullable=False),
        )
        op.create_index("set_aside_by_listing", "set_aside", ["type", "listed_hour"])
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


def downgrade() -> None:
    """Drop what version 5 does not know."""
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
    for table, name in _COLUMNS:
        op.drop_column(table, name)
