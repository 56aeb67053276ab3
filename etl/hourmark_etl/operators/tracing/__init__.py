"""Where one line, event or record is by now, from the servers that know: `hourmark trace`.

| module     | what it holds                                                                     |
|------------|-----------------------------------------------------------------------------------|
| `question` | what can be asked for, and how it is written                                      |
| `found`    | what each server knew, and what it was looked for in                              |
| `walk`     | the steps, each asked for what the others told; a server that is away costs its own step alone |
| `topics`   | reads Kafka: audit records and events, by offset, or between two times            |
| `kept`     | reads the ledger, staged files and buckets                                        |
| `story`    | what it comes to: the verdict, and a line for each step. Pure                     |
"""
