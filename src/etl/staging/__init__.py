"""The consumer: micro-batches of all topics become a few staged files, and one ledger transaction each.

consumer.py      a shard's Structured Streaming query: the commit of each batch, why it ended, the restart where a server was away
kafka_source.py  the streaming source: plans in a process beside the driver, asking ledger and cluster; tasks that read and stage
planner.py       spans of a batch, in fair shares, dealt out to tasks
reading.py       spans of offsets from Kafka, as Arrow columns
task.py          a task: reads its spans, stages them as one sorted Parquet file, leaves out what cannot be staged
columns.py       Arrow columns of keys and values, read without decoding an event
files.py         the format of staged files
verified.py      files that verify themselves: name → footer → chunks
pieces.py        what tasks are told and answer, and what a staged file says of itself
cleanup.py       deletes what nothing reads any more
restaging.py     a damaged staged file is staged again
resuming.py      types that were set aside
"""
