"""The consumer: stages micro-batches of all topics as files, with one ledger transaction per batch.

| module       | content                                                                        |
|--------------|--------------------------------------------------------------------------------|
| `consumer`   | the Structured Streaming query of a shard: commits, error causes, restarts     |
| `source`     | the streaming source that is registered with Spark                             |
| `planner`    | the source's reader: plans batches from ledger and cluster; tasks that stage   |
| `plan`       | the offset spans of a batch, shared fairly and assigned to tasks               |
| `read`       | spans of offsets from Kafka, as Arrow columns                                  |
| `records`    | checks of each record on an event topic                                        |
| `reports`    | host reports, without repeated ones                                            |
| `stage`      | a task: reads its spans and writes them as one sorted Parquet file             |
| `files`      | the format of staged files                                                     |
| `verified`   | Parquet files with digests: name → footer → column chunks                      |
| `pieces`     | inputs and results of tasks, and the note in a staged file's footer            |
| `restage`    | replaces a damaged staged file                                                 |
| `unreadable` | skips offsets that cannot be read                                              |
"""
