"""The report as Markdown, with figures published by others: the source of docs/evaluation.md.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hourmark_evaluate.report import published_figures, tables
from hourmark_evaluate.results import Evaluation

_INTRO: Final = """\
The system that this project follows tried Kafka, and gave it up: the mirror said “done” when the target had refused, several
mirror workers confused their leader, and producers stuck after brokers came and went until they were started anew. These are the
same trials, in the same order, with the Kafka of today. This page is made by `hourmark evaluate --markdown FILE`.

Each record carries a number of its own and a checksum. What was acknowledged is held against what an ordinary consumer reads back
(`read_committed`), record by record, on the edge and on the central cluster. *Lost*: acknowledged, and never read. *Doubled*:
read once too often. *Phantom*: read, and never sent so. *Longest wait*: of a record that was under way meanwhile, for its
acknowledgement, or for its copy on the central cluster. *Well again after*: from when the servers were back until all that was
sent before was through."""

_FOUND: Final = """\
Of Kafka 4.3.0, whoever runs these trials:

- A topic's `max.message.bytes` of 1, less than a transaction's marker, left a transaction without an end: its coordinator could
  not write the marker, threw, and did not try again. A mirror that copies exactly once stood still from then on, through a
  restart of its own, until the coordinator's broker was started anew. The trial's limit is 100 bytes since.
- More `min.insync.replicas` than a topic has replicas is no refusal: writes go on.
- A broker that is killed and started within its session (9 s) is missed by nobody, but writes to all partitions that it has a
  copy of wait until the session is over or the broker has come back: the longest waits above.
- Where the central cluster has several brokers, a mirror's position can be committed a moment before the marker of the same
  transaction reaches another partition: readers are given the records that much later (282 of 6,657 looks at transactions over
  three idle brokers found them in one partition, and not in another that was asked for afterwards). In the first run with three
  central brokers, a short one, 87 records were claimed that readers had not been given; in the end all were there, and later
  runs had none. A claim is held against the ends of the logs (high watermarks) since, once the transactions that were under way
  are over, as Hourmark does before it closes a bucket.
- Workers that are killed in a transaction leave it open until it times out, by default after a minute, and a worker that starts
  reads the mirror's positions to their end, which lies behind it. So a mirror of which all workers were killed at once may stand
  still for more than a minute. Where one lives, it takes the tasks over, and the transaction ends as they start.

Of Hourmark: offsets that were asked for right after a leader had changed were refused to a client that knew the old one, once,
and taken for an outage; they are asked for again now, by a new client."""

_LIMITS: Final = """\
- A run is a handful of faults. It says little of what happens once in a hundred; `hourmark chaos` plays faults by the hundred.
- Times and rates are those of the machine above, with client, brokers and mirror on the same cores where it is the local stack.
  Only ratios within a run mean something elsewhere.
- A broker killed on one machine leaves the page cache to its successor. A power cut would not: acknowledged means in the memory
  of all in-sync replicas.
- The client is librdkafka with the settings of the delivery service's producer. It waits at least three minutes for an
  acknowledgement, where the service gives up after half of one and has its clients send again.
- Brokers that are replaced keep their names and addresses, whether their disks are emptied or not. Brokers with new addresses are
  a test of the project's own.
- Metrics are compared where they mean the same: ends of logs always; counts of incoming records only where no broker was started
  anew, as they begin again from 0.
- Others' figures: Raccoon's and LoongCollector's were read on their pages, LinkedIn's in summaries of its post, in November 2026.
  Those of the system that this one follows, and the goal of 2018, are taken from this project's notes."""


def as_markdown(evaluation: Evaluation) -> str:
    """Return the complete report as one Markdown page, with figures published by others."""
    parts = (
        "# Kafka, evaluated",
        _INTRO,
        (
            f"{tables.describe_setting(evaluation)} Repeated by `{evaluation.command}`; one trial by "
            "`--trial NAME`."
        ),
        "## Verdicts",
        format_table(tables.PROPERTIES, tables.property_rows(evaluation)),
        "## Trials",
        format_table(tables.TRIALS, tables.trial_rows(evaluation)),
        "## What was done, and how long it took",
        format_table(tables.DISTURBANCES, tables.disturbance_rows(evaluation)),
        "## What it cost",
        format_table(tables.COSTS, tables.cost_rows(evaluation)),
        "## Also seen",
        "\n".join(f"- {remark}" for remark in tables.remarks(evaluation)),
        "## Beside what others published",
        format_table(published_figures.HEAD, published_figures.comparison_rows(evaluation)),
        "## Found when the trials were made",
        _FOUND,
        "## What this can and cannot say",
        _LIMITS,
    )
    return "\n\n".join(parts) + "\n"


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, with `|` escaped in all cells.

    Args:
        head: Column titles.
        rows: Cell texts; each row has as many cells as `head`.

    Returns:
        The table without a trailing newline; "Nothing." if there are no rows.
    """
    if not rows:
        return "Nothing."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
