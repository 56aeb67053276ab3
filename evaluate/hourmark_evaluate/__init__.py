"""Trials of Kafka clusters under faults, with reproducible results (`hourmark evaluate`).

Each module in `trials` injects one kind of fault into a local stack or into the user's clusters. It
yields a `results.Trial`, from which `verdicts` derives a verdict per property. `page`, `markdown`
and `results.as_json` render the report.

Reading order:

- `results` (data of a trial), `verdicts`, `accounting` (sent compared with read): pure functions.
- `load`, `reading` and `brokers`: clients of the clusters.
- `hands` (operations on servers), `stage` (the course of one trial), `trials`, `run`, `cli`.
- `wording`, `page`, `plots`, `markdown` and `peers`: rendering, pure functions.

Each record carries its own number, and acknowledged records are compared with what an ordinary
consumer reads back. Metrics and positions that a server reports are never trusted alone; they are
only compared with these counts.
"""
