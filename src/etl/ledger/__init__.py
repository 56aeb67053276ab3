"""The ledger: the ETL's only commit point. One SQL database, SQLite or PostgreSQL by URL; every change is one transaction.

tables.py         the tables
migrations        the one way they are made and changed
rows.py           what is read from and written to them, as domain types
engines.py        SQLite and PostgreSQL by URL
database.py       transactions, epochs (leases) that fence a stale driver, the commit number
batch_file.py     what a batch commits, beside its staged files: a lost ledger is rebuilt from it
staging.py        positions and staged groups: what the consumer commits
frontiers.py      freeze, seal, close: what the closer commits
frontier_rows.py  what `hourmark types apply` adds
"""
