"""Several sites: the site of each group of audit records, and the settled audit offsets of the
sites other than the first.
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
    # A ledger that revision 2 has just created has the columns already. Null means the first site,
    # to which all existing rows belong.
    there = inspect(op.get_bind())
    for table, name in _COLUMNS:
        if name not in {column["name"] for column in there.get_columns(table)}:
            op.add_column(table, Column(name, Text))


def downgrade() -> None:
    # With one site nothing is lost; with several, `operators.rollback` refuses the downgrade.
    for table, name in _COLUMNS:
        op.drop_column(table, name)
