"""Several sites: whose audit topic a promise is from, and how far promises are settled at further
sites.
"""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import Column, Text, inspect

revision = "5"
down_revision = "4"
branch_labels = None
depends_on = None

_COLUMNS: Final = (
    ("audit_groups", "site"),
    ("frontiers", "settled_further"),
    ("unaudited", "audit_further"),
)


def upgrade() -> None:
    """A ledger that was just made by revision 2 has them already.

    What is there is of the first site: null says so.
    """
    there = inspect(op.get_bind())
    for table, name in _COLUMNS:
        if name not in {column["name"] for column in there.get_columns(table)}:
            op.add_column(table, Column(name, Text))


def downgrade() -> None:
    """Of one site nothing is lost.

    Of several `hourmark ledger downgrade` refuses it (`operators.rollback`).
    """
    for table, name in _COLUMNS:
        op.drop_column(table, name)
