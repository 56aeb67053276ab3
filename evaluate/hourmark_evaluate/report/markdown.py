"""The report as Markdown, with figures published by others: the source of docs/internals/evaluation.md.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hourmark_evaluate.report import published_figures, tables
from hourmark_evaluate.results import Evaluation

_INTRO: Final = """\
This page shows whether a current version of Kafka lost, duplicated or delayed records during
faults, for example when brokers were killed. It helps you decide whether to rely on Kafka. To
repeat the trials, run `hourmark evaluate`.

Hourmark follows an earlier system, whose developers decided against Kafka for three reasons:

- The mirror reported records as copied although the target had refused them.
- Several mirror workers disagreed about their leader.
- Producers were stuck after brokers had stopped and started, until the producers were restarted.

With a current version of Kafka, the trials `mirror-refused`, `leaders` and `producers` repeat the
three situations in which the earlier system had problems, in this order. The command `hourmark
evaluate --markdown FILE` writes the results to a page like this one.

Each record that a trial sends contains a number and a checksum, so that lost, duplicated and
altered records can be recognized. An ordinary consumer (`read_committed`) reads all records from
the edge cluster and from the central cluster. Each acknowledged record is then compared with the
records that were read. The tables on this page use the following terms:

- *Lost*: acknowledged but never read.
- *Doubled*: read more than once.
- *Phantom*: read but not sent in this form.
- *Longest wait*: the longest time that a record in flight during a fault waited for its acknowledgement, or for its copy on the
  central cluster.
- *Recovered after*: the time from the recovery of the servers until all records sent before it were acknowledged or copied."""

_FOUND: Final = """\
While the trials were developed, the following behavior of Kafka 4.3.0 was observed. It does not
depend on Hourmark.

- With a topic's `max.message.bytes` of 1, less than the size of a transaction marker, a transaction never ended: its coordinator
  could not write the marker, threw an exception, and did not try again. From then on, a mirror that copies exactly once made no
  progress, even after a restart of the mirror, until the coordinator's broker was restarted. The trial now uses a limit of 100
  bytes.
- `min.insync.replicas` above the number of a topic's replicas does not refuse writes.
- If a broker is killed and started again within its session (9 s), the cluster does not notice its absence. Writes to all
  partitions of which it has a replica wait until the session expires or the broker has returned. This causes the longest waits
  above.
- If the central cluster has several brokers, a mirror's position can be committed shortly before the marker of the same
  transaction reaches another partition, so that readers receive the records later. With transactions over three idle brokers,
  282 of 6,657 samples found the records in one partition but not in another one that was read afterwards. In the first run with
  three central brokers, a short one, 87 committed records were not yet readable; all of them were there at the end, and later runs
  had none. Positions are therefore compared with the ends of the logs (high watermarks) once the transactions in progress have
  completed, as Hourmark does before it closes a bucket.
- Workers that are killed within a transaction leave it open until it times out, by default after one minute. A worker that starts
  reads the mirror's positions up to their end, which is after the open transaction. A mirror whose workers were all killed at once
  can therefore make no progress for more than a minute. If one worker survives, it takes over the tasks, and the transaction ends
  when they start.

The evaluation also found an error in Hourmark. A client of Hourmark requested offsets immediately
after a partition had a new leader. Because the client still knew the old leader, the request was
refused, and Hourmark mistook the refusal for an outage. Hourmark now repeats such a request with a
new client."""

_LIMITS: Final = """\
- A run injects a few faults. It shows little about failures that happen once in a hundred times; `hourmark chaos` injects faults
  by the hundred.
- Times and rates are those of the machine above. On the local stack, client, brokers and mirror share its cores. Only ratios
  within a run can be transferred to other machines.
- A broker that is killed leaves its page cache to its successor on the same machine, which a power failure would not.
  Acknowledged means: in the memory of all in-sync replicas.
- The client is librdkafka with the settings of the delivery service's producer. It waits at least three minutes for an
  acknowledgement; the service gives up after half a minute, and its clients send the data again.
- Replaced brokers keep their names and addresses, whether or not their disks are emptied. The project tests brokers with new
  addresses separately.
- Metrics are compared only if they have the same meaning: log end offsets always; counts of incoming records only if no broker was
  restarted, because they restart at 0.
- Figures of others: those of Raccoon and LoongCollector were read on their pages, those of LinkedIn in summaries of its article, in
  November 2026. Those of the system that this project follows, and the goal of 2018, are taken from this project's notes."""


def as_markdown(evaluation: Evaluation) -> str:
    """Render an evaluation as a Markdown page, including a comparison with published figures.

    Args:
        evaluation: The result of a completed or interrupted run.
    """
    parts = (
        "# Kafka, evaluated",
        _INTRO,
        tables.describe_setting(evaluation),
        (
            f"The command of this run was `{evaluation.command}`. To run a single trial, add `--trial NAME` "
            "to the command."
        ),
        "## Verdicts",
        format_table(tables.PROPERTIES, tables.property_rows(evaluation)),
        "## Trials",
        format_table(tables.TRIALS, tables.trial_rows(evaluation)),
        "## Faults and recovery times",
        format_table(tables.DISTURBANCES, tables.disturbance_rows(evaluation)),
        "## CPU time",
        format_table(tables.COSTS, tables.cost_rows(evaluation)),
        "## Remarks",
        "\n".join(f"- {remark}" for remark in tables.remarks(evaluation)),
        "## Comparison with published figures",
        format_table(published_figures.HEAD, published_figures.comparison_rows(evaluation)),
        "## Findings during development",
        _FOUND,
        "## Limits of the evaluation",
        _LIMITS,
    )
    return "\n\n".join(parts) + "\n"


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, with `|` escaped in all cells.

    Args:
        head: Column titles.
        rows: Cell texts; each row has as many cells as `head`.

    Returns:
        The table without a trailing newline; "None." if there are no rows.
    """
    if not rows:
        return "None."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
