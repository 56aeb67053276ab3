"""Sources whose senders cannot be asked again."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, false, inspect

revision = "4"
down_revision = "3"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A ledger that was just made by revision 2 has it already."""
    if "unrepeatable" not in {
        column["name"] for column in inspect(op.get_bind()).get_columns("reporters")
    }:
        op.add_column(
            "reporters", Column("unrepeatable", Boolean, nullable=False, server_default=false())
        )


def downgrade() -> None:
    """Reports tell it again."""
    op.drop_column("reporters", "unrepeatable")
