"""The PySpark job: from the central cluster's topics to closed hourly buckets, each exactly once, with a proof.

    staging/   consumer: micro-batches of all topics become a few staged files, then one ledger transaction
    ledger/    the only commit point: positions, staged groups, frontiers, what hosts reported
    closing/   open → frozen → sealed → published → closed, hour by hour: cut, freeze, prove, write, publish
    storage/   local disk and HDFS behind one interface; one atomic operation, a rename that refuses to overwrite

`job.py` is the driver's main program; `hourmark etl run` and `spark-submit src/etl/job.py` both end there.
"""
