"""The Alembic environment: runs revisions on the connection of `upgrade`, in its transaction."""

from __future__ import annotations

from alembic import context

from hourmark_etl.ledger import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    render_as_batch=True,  # SQLite changes a column by copying the table
)
with context.begin_transaction():
    context.run_migrations()
