"""Finds the pipeline stage that a line, event or record has reached: `hourmark trace`.

| module           | content                                                                   |
|------------------|---------------------------------------------------------------------------|
| `query`          | the objects that can be traced, and their text forms                      |
| `results`        | the result of each step, with the places that were searched               |
| `tracer`         | the steps; each uses the results of others, and fails alone               |
| `kafka_search`   | reads audit records and events from Kafka, by offset or by time           |
| `storage_search` | reads the ledger, staged files and buckets                                |
| `summary`        | the verdict, and one line for each step. Pure                             |
"""
