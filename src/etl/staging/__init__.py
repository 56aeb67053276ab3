"""The consumer: micro-batches of all topics become a few staged files, and one ledger transaction each.

task.py      in a Spark task: Kafka rows → one sorted Parquet file, whatever the number of types
columns.py   Arrow columns of keys and values, read without decoding an event
consumer.py  the Structured Streaming query, started from the ledger's offsets, and the commit of each batch
planned.py   a micro-batch's planned end offsets
"""
