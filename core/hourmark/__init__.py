"""Core library of Hourmark: data formats, rules, configuration and command line of all components.

| modules                 | content                                                               |
|-------------------------|-----------------------------------------------------------------------|
| `records`               | event ids, byte ranges, audit records, host reports, bucket manifests |
| `rules`                 | event types, sources and rules revisions                              |
| `avro`                  | Avro schemas and datums, the schema registry                          |
| `kafka`                 | clients, readers of committed records, topics                         |
| `config`                | the typed settings and their loading                                  |
| `process`               | durable files, signals, certificates, alarms, metrics                 |
| `clock`, `errors`       | time as a dependency; the exception hierarchy                         |
| `cli`, `commands`       | the command line                                                      |

No module imports another distribution (`producer`, `delivery_service`, `mirror`, `etl`, `infra`); a
test verifies it.
"""
