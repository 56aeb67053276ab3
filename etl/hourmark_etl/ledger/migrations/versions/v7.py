"""Back-filled hours: closed hours before the first hour of a type."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, inspect

revision = "7"
down_revision = "6"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A ledger that revision 2 has just created has the column already. Null means that no hour was
    # back-filled, as in all ledgers of earlier revisions.
    there = inspect(op.get_bind())
    if "backfilled_hour" not in {column["name"] for column in there.get_columns("frontiers")}:
        op.add_column("frontiers", Column("backfilled_hour", BigInteger))


def downgrade() -> None:
    # `operators.rollback` refuses the downgrade if a type has back-filled hours.
    op.drop_column("frontiers", "backfilled_hour")
