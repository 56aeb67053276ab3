"""The PySpark job: from the central cluster's topics to closed hourly buckets, each exactly once,
with a proof.

    driver.py   wires all of it, loops, shuts down: `hourmark etl run`, and `spark-submit etl/job.py`
    beginning.py  what a driver needs before it begins, and waits for
    operators/  what operators ask and order: `bucket`, `audit`, `ledger`, `trace`; telemetry/: metrics, progress, gauges
    closing/    open → frozen → sealed → published → closed, hour by hour: cut, freeze, prove, write, publish
    recovery/   a lost ledger made again from what stands on storage; checks
    ids/        which ids closed buckets hold, by an index of them or by the buckets themselves
    staging/    the consumer: micro-batches of all topics become a few staged files, then one ledger transaction
    ledger/     the only commit point: positions, staged groups, frontiers, what hosts reported
    buckets/    closed buckets as they stand on storage
    storage/    local disk and HDFS behind one interface; one atomic operation, a rename that refuses to overwrite
    model.py    domain types

Each imports only what stands below it (pyproject.toml, import-linter).
"""
