"""Our counts beside the brokers' own. Pure."""

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
    """`read`: what a consumer counted, by topic and partition.

    `told`: by all brokers of the cluster.

    Ends of replicas outlive a broker's restart; its counts of incoming records do not, so they are
    held against ours only where nothing was disturbed. Topics are new and their producer uses no
    transactions: each offset is a record.
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
