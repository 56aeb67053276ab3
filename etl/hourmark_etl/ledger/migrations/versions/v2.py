"""The ledger of the first release.

Until then its tables are those of `tables.py`; at the release they are written out here.
"""

from __future__ import annotations

from alembic import op

from hourmark_etl.ledger import tables

revision = "2"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    tables.metadata.create_all(op.get_bind(), checkfirst=False)
