"""Trials of Kafka clusters under faults, with reproducible results, and sizing of installations.

`hourmark evaluate` runs the trials of the package `trials` on a local stack or on the user's
clusters. `hourmark size` (the package `sizing`) estimates how many machines a load needs.

| package or module | content                                                                      |
|-------------------|------------------------------------------------------------------------------|
| `cli`             | the command `hourmark evaluate`                                              |
| `evaluation`      | one run of the selected trials                                               |
| `trials`          | the trials, one module each; its docstring describes how to add one          |
| `execution`       | the steps of one trial, its environment, the operations on servers           |
| `clients`         | clients of the clusters: producer, consumers, metadata, metrics              |
| `report`          | the report as HTML and Markdown                                              |
| `verdicts`        | a verdict per property, derived from the results (pure)                      |
| `accounting`      | records sent compared with records read (pure)                               |
| `results`         | the results of trials as data, and their JSON format                         |
| `record_format`   | the bytes of a record, and the topic and partition to which it is sent       |
| `sizing`          | the command `hourmark size`                                                  |

Each record carries its own number, and acknowledged records are compared with those that an
ordinary consumer reads back. Metrics and positions that a server reports are never trusted alone;
they are only compared with these counts.
"""
