"""The consumer: micro-batches of all topics become a few staged files, and one ledger transaction
each.

consumer.py  a shard's Structured Streaming query: the commit of each batch, why it ended, the restart where a server was away
source.py    the streaming source, as Spark is told of it
planner.py   its reader: plans in a process beside the driver, asking ledger and cluster; tasks that read and stage
plan.py      spans of a batch, in fair shares, dealt out to tasks
read.py      spans of offsets from Kafka, as Arrow columns
stage.py     a task: reads its spans, stages them as one sorted Parquet file, leaves out what cannot be staged
files.py     the format of staged files; verified.py: files that verify themselves: name → footer → chunks
pieces.py    what tasks are told and answer, and what a staged file says of itself
restage.py   a damaged staged file is staged again; unreadable.py: offsets that cannot be read are skipped
"""
