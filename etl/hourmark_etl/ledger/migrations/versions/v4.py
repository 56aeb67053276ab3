"""Sources whose senders cannot send data again."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, false, inspect

revision = "4"
down_revision = "3"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A ledger that revision 2 has just created has the column already.
    if "unrepeatable" not in {
        column["name"] for column in inspect(op.get_bind()).get_columns("reporters")
    }:
        op.add_column(
            "reporters", Column("unrepeatable", Boolean, nullable=False, server_default=false())
        )


def downgrade() -> None:
    # The next reports contain the value again.
    op.drop_column("reporters", "unrepeatable")
