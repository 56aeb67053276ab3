"""Clients of the clusters under evaluation.

| module            | content                                                          |
|-------------------|------------------------------------------------------------------|
| `cluster`         | topics, leaders, brokers and in-sync replicas of one cluster     |
| `load_producer`   | a producer that sends numbered records at a given rate           |
| `readers`         | consumers that read the records back                             |
| `mirror_observer` | a mirror's committed positions, compared with the target cluster |
| `broker_metrics`  | the brokers' own counts, read through JMX                        |
"""
