"""The consumer: micro-batches of all topics become a few staged files, and one ledger transaction each.

shards.py        a driver's consumers, one for each shard
consumer.py      one shard's Structured Streaming query: the commit of each batch, the restart where a server was away
kafka_source.py  the streaming source: plans in a process beside the driver, tasks that read and stage
planning.py      what is to be read now: asks ledger and cluster
planner.py       spans of a batch, in fair shares, dealt out to tasks
kafka_task.py    a task: reads its spans, stages them, leaves out what cannot be staged
reading.py       spans of offsets from Kafka, as Arrow columns
task.py          rows of any number of types → one sorted Parquet file
columns.py       Arrow columns of keys and values, read without decoding an event
files.py         the format of staged files
verified.py      files that verify themselves: name → footer → chunks
pieces.py        what tasks are told and answer, and what a staged file says of itself
cleanup.py       deletes what nothing reads any more
restaging.py     a damaged staged file is staged again
failures.py      why a query ended
resuming.py      types that were set aside
"""
