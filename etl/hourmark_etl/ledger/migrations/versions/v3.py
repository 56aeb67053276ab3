"""Losses of hosts: by how much each report added to them, and those that nobody can measure."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, inspect

from hourmark_etl.ledger import tables

revision = "3"
down_revision = "2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A ledger that was just made by revision 2 has both already."""
    there = inspect(op.get_bind())
    if not there.has_table("host_losses"):
        tables.host_losses.create(op.get_bind())
    if "unknown_losses" not in {column["name"] for column in there.get_columns("reporters")}:
        op.add_column(
            "reporters", Column("unknown_losses", BigInteger, nullable=False, server_default="0")
        )


def downgrade() -> None:
    """What hosts lost is not remembered by a ledger of revision 2, but for the bytes in
    `reporters`.
    """
    op.drop_column("reporters", "unknown_losses")
    op.drop_table("host_losses")
