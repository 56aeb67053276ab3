"""The PySpark job that turns the central Kafka cluster's topics into closed hourly buckets.

Each bucket is published exactly once, with a proof of completeness in its manifest.

    driver.py   creates all components, runs the main loop and shuts down: `hourmark etl run`, `spark-submit etl/job.py`
    startup.py  opens the ledger, the storage and the central cluster, and waits until they are available
    operators/  commands for operators: `bucket`, `audit`, `ledger`, `trace`; telemetry/: metrics, progress, gauges
    closing/    open → frozen → sealed → published → closed, hour by hour: cut, freeze, prove, write, publish
    recovery/   rebuilds a lost ledger from the files on storage; consistency checks
    ids/        finds event ids in closed buckets, through an index of ids or the buckets themselves
    staging/    the consumer: one micro-batch of all topics becomes a few staged files and one ledger transaction
    ledger/     the only commit point: positions, staged groups, frontiers, host reports
    buckets/    reads and verifies closed buckets on storage
    storage/    local disk and HDFS behind one interface; the only atomic operation is a rename that refuses to overwrite
    model.py    domain types

Each package imports only packages that are listed below it (pyproject.toml, import-linter).
"""
