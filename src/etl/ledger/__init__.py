"""The ledger: the ETL's only commit point. One SQL database, SQLite by default; every change is one transaction.

tables.py         the tables, and the one way they are made
rows.py           what is read from and written to them, as domain types
database.py       engine, transactions, epochs (leases) that fence a stale driver, the commit number
staging.py        positions and staged groups: what the consumer commits
frontiers.py      freeze, seal, close: what the closer commits
frontier_rows.py  what `hourmark types apply` adds
"""
