"""Comparison of this evaluation's record counts with the brokers' metrics. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hourmark_evaluate.jmx import Told
from hourmark_evaluate.results import Comparison


def comparisons(
    read: Mapping[tuple[str, int], int],
    told: Sequence[Told],
    replication: int,
    *,
    undisturbed: bool,
) -> tuple[Comparison, ...]:
    """Compare record counts of a consumer with the metrics of the brokers.

    Log end offsets are always compared. Counts of incoming records restart at 0 with the broker, so
    they are compared only if `undisturbed`. The topics must be new and written without
    transactions, so that each offset is one record.

    Args:
        read: Records that a consumer read, by (topic, partition).
        told: The metrics of every broker of the cluster.
        replication: Replication factor of the topics.
        undisturbed: Whether no broker was restarted since the topics were created.

    Returns:
        Total records by log end offset, number of replicas with the expected log end offset and, if
        `undisturbed`, total records by incoming count.
    """
    ends = [(at, broker.log_ends[at]) for broker in told for at in read if at in broker.log_ends]
    highest: dict[tuple[str, int], int] = {}
    for at, end in ends:
        highest[at] = max(end, highest.get(at, 0))
    found = [
        Comparison(
            what="records, by log ends", ours=sum(read.values()), brokers=sum(highest.values())
        ),
        Comparison(
            what="replicas whose log ends where we read to the end",
            ours=replication * len(read),
            brokers=sum(end == read[at] for at, end in ends),
        ),
    ]
    if undisturbed:
        by_topic: Counter[str] = Counter()
        for (topic, _), count in read.items():
            by_topic[topic] += count
        came = sum(broker.messages_in.get(topic, 0) for broker in told for topic in by_topic)
        found.append(
            Comparison(
                what="records, by MessagesInPerSec", ours=sum(by_topic.values()), brokers=came
            )
        )
    return tuple(found)
