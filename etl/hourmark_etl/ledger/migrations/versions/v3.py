"""Data losses of hosts: the increase that each report states, and losses of unknown size."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, inspect

from hourmark_etl.ledger import tables

revision = "3"
down_revision = "2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A ledger that revision 2 has just created has both already.
    there = inspect(op.get_bind())
    if not there.has_table("host_losses"):
        tables.host_losses.create(op.get_bind())
    if "unknown_losses" not in {column["name"] for column in there.get_columns("reporters")}:
        op.add_column(
            "reporters", Column("unknown_losses", BigInteger, nullable=False, server_default="0")
        )


def downgrade() -> None:
    # Revision 2 stores only the lost bytes in `reporters`; other data about losses is dropped.
    op.drop_column("reporters", "unknown_losses")
    op.drop_table("host_losses")
