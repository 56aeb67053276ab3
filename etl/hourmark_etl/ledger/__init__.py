"""The ledger: the ETL's only commit point, one SQL database (SQLite or PostgreSQL by URL).

Every change is one transaction. Domain types are in `hourmark_etl.model`.

Foundation:

| module        | content                                                              |
|---------------|----------------------------------------------------------------------|
| `tables`      | the tables; only `migrations` creates and changes them               |
| `engines`     | SQLite and PostgreSQL by URL                                         |
| `database`    | transactions, leases that fence stale drivers, the commit number     |
| `digests`     | digests of rows, compared at each read                               |
| `migrations`  | changes of the tables, one step per version                          |
| `maintenance` | opening, copying and downgrading a ledger; its state without changes |

Writers:

| module                                           | writer                                                     |
|--------------------------------------------------|------------------------------------------------------------|
| `rules`, `schemas`, `frontier_rows`              | `hourmark types apply`                                     |
| `batches`, `hosts`                               | the consumer                                               |
| `partitions`                                     | the consumer and the closer: lost records and failed reads |
| `frontiers`, `backfill`, `closed`, `bucket_rows` | the closer                                                 |
| `conflicts`                                      | the closer: ranges that were read in two ways              |
| `staged`                                         | the closer: staged files, unneeded or unreadable           |
| `overrides`                                      | operators; the closer: what each hour waits for            |
| `heartbeat`                                      | the driver                                                 |
"""
