"""Cross-cluster replication: runs MirrorMaker 2 from the configuration and verifies its copies.

| module or package       | contents                                                               |
|-------------------------|------------------------------------------------------------------------|
| `settings`              | MirrorMaker 2's properties and both clusters of a configuration        |
| `topics`                | expected remote topics, and how they differ from the existing ones     |
| `run`                   | MirrorMaker 2 as a child process: supervision, failure detection       |
| `lag`, `record_digests` | records not yet copied; record contents as digests                     |
| `verify`                | full comparison of source and target                                   |
| `watch`                 | continuous observation, sampling and alarms                            |
| `reset`                 | deletion of stored positions, so that topics are copied again          |
| `state_lock`            | exclusive lock on a state file                                         |

Positions and group members (`hourmark.kafka.mirror`) are read by the ETL as well, which needs them
before it closes a bucket.
"""
