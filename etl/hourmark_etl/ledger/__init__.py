"""The ledger: the ETL's only commit point, one SQL database (SQLite or PostgreSQL by URL).

Every change is one transaction. Domain types are in `hourmark_etl.model`.

Foundation:

| module            | content                                                             |
|-------------------|---------------------------------------------------------------------|
| `tables`          | the tables; only `migrations` creates and changes them              |
| `engines`         | SQLite and PostgreSQL by URL                                        |
| `database`        | transactions, leases that fence stale drivers, the commit number    |
| `existing`        | opens the configured ledger, but never creates one over a lost one  |
| `database_status` | the state of the database, read without changes                     |
| `backups`         | a copy before tables are changed                                    |
| `downgrading`     | returns a ledger to an older version                                |
| `digests`         | digests of rows, compared at each read                              |

Writers:

| module                                | writer                                              |
|---------------------------------------|-----------------------------------------------------|
| `rules`, `schemas`, `frontier_rows`   | `hourmark types apply`                              |
| `batches`, `read_errors`, `reporters` | the consumer                                        |
| `frontiers`, `closed`, `bucket_rows`  | the closer                                          |
| `offset_gaps`                         | consumer and closer: records that may be missing    |
| `conflicts`                           | the closer: ranges that were read in two ways       |
| `staged_files`                        | the closer: staged files, unneeded or unreadable    |
| `overrides`                           | operators; the closer: what each hour waits for     |
| `heartbeat`                           | the driver                                          |

Readers: `listings` (proofs of many types at once; reconciliation) and `overview` (operators and
metrics).
"""
