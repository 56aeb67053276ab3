"""The execution of a trial: its environment, the operations on servers, and its steps.

| module              | content                                                              |
|---------------------|----------------------------------------------------------------------|
| `trial_run`         | one running trial: load, faults, observations, result                |
| `broker_outage`     | stop brokers for a while, for the trials that do so                  |
| `mirror_state`      | the mirror's workers and whether it copies, for the trials with one  |
| `environment`       | clusters, operations, the user's options; waiting for a condition    |
| `server_operations` | operations on servers, and those that run the user's commands        |
| `local_stack`       | the operations on a local stack                                      |
"""
