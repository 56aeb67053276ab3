"""Cross-cluster replication: runs MirrorMaker 2 from Hourmark's configuration, and verifies that it
did what it promises.

- `properties`: MirrorMaker 2's properties, a pure function of the configuration
- `sites`: both clusters, and which topics are copied
- `remote_topics`: the remote topics, made by Hourmark with the settings of the edge's
- `planning`: what differs between the edge's topics, the remote ones and what workers run with, a
  pure function of what was read
- `process`, `task_status`, `progress`, `answering`, `supervisor`: MirrorMaker 2 as a child that
  never outlives its parent, and is started again when it ends, when one of its tasks fails, when it
  stands still, or does not answer
- `group`: the workers of one mirror, as the target cluster knows them
- `lag`, `reading`, `comparison`, `verification`: how far it is, and whether the target holds what
  the source holds
- `checks`: what is remembered between two checks, so that a gap between them is seen;
  `memory_lock`: held while it is written
- `observed`, `judging`: alarms, a pure function of one look and of what is remembered of those
  before; `looking`, `uncopied`, `watch_memory`, `watching`, `metrics`: the look, the memory, and
  what tells of it; `overseeing`: a look that does not end

Where it stands (`hourmark.kafka.mirror`) is shared with the ETL, which asks the same question
before it closes a bucket; who leads its workers (`hourmark.kafka.mirror`) with what evaluates
Kafka.
"""
