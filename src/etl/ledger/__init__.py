"""The ledger: the ETL's only commit point. One SQL database, SQLite or PostgreSQL by URL; every change is one transaction.

What it is made of

tables.py         the tables
migrations        the one way they are made and changed
rows.py           what is read from and written to them, as domain types
engines.py        SQLite and PostgreSQL by URL
database.py       transactions, epochs (leases) that fence a stale driver, the commit number

Who writes what

frontier_rows.py  `hourmark types apply`: a row for each type
staging.py        the consumer: positions and staged groups
frontiers.py      the closer: freeze, seal, close
edge.py           the closer: where the mirror stood; consumer and closer: records that may never be staged
orders.py         operators: hours that are forced; the closer: what each hour waits for
closed.py         closing: what later hours need of closed ones
leftovers.py      closer: staged files that are needed no longer, or cannot be read

Who asks what: listings.py (proofs, of many types at once; the books), overview.py (operators and metrics)

What is kept outside, and what it is for

first_hours.py    where types' chains of buckets begin
markers.py        is this the newest ledger? asked at a driver's start
check.py          `hourmark ledger check`
rebuild.py        `hourmark ledger rebuild`; remains.py reads what is left
"""
