"""The ledger: the ETL's only commit point.

One SQL database, SQLite or PostgreSQL by URL; every change is one transaction.

What it is made of

tables.py         the tables; migrations: the one way they are made and changed
engines.py        SQLite and PostgreSQL by URL
database.py       transactions, epochs (leases) that fence a stale driver, the commit number
existing.py       opens the one that is configured, and never a new one in place of one that is lost
backups.py        a copy before tables are changed; stepping_down.py: the way back to an older version
digests.py        rows that a proof rests on, compared whenever they are read

Who writes what (domain types: `hourmark_etl.model`)

rules.py          `hourmark types apply`: revisions; schemas.py: what schema ids stand for; frontier_rows.py: a row for each type
batches.py        the consumer: positions, staged files and groups, reports
frontiers.py      the closer: freeze, seal, close
offset_gaps.py    the closer: where the mirror stood; consumer and closer: records that may never be staged
conflicts.py      the closer: ranges that were read in two ways
heartbeat.py      the driver: a sign of life
overrides.py      operators: hours that are forced; the closer: what each hour waits for
closed.py         closing: what later hours need of closed ones
staged_files.py   the closer: staged files that are needed no longer, or cannot be read

Who asks what: listings.py (proofs, of many types at once; reconciliation), overview.py (operators
and metrics)
"""
