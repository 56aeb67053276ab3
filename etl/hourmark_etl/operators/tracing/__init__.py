"""Finds out how far one line, event or record has come: `hourmark trace`.

| module     | content                                                                           |
|------------|-----------------------------------------------------------------------------------|
| `question` | what can be traced, and how it is written                                         |
| `found`    | what each step found, and where it searched                                       |
| `walk`     | the steps; each uses the results of others, and fails alone if its server is down |
| `topics`   | reads Kafka: audit records and events, by offset or by time                       |
| `kept`     | reads the ledger, staged files and buckets                                        |
| `story`    | the verdict, and one line for each step. Pure                                     |
"""
