"""Record counts from the brokers' own metrics, and their comparison with the counts of a consumer.

The metrics are read through JMX with JmxTool, which is part of Kafka's jars.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hourmark.errors import Unavailable
from hourmark_evaluate.results import MetricComparison

JMX_TIMEOUT_SECONDS: Final = 60.0
_TOOL: Final = "org.apache.kafka.tools.JmxTool"
_END: Final = re.compile(
    r"^kafka\.log:type=Log,name=LogEndOffset,topic=(?P<topic>[^,]+),partition=(?P<partition>\d+):Value=(?P<n>\d+)$"
)
_IN: Final = re.compile(
    r"^kafka\.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=(?P<topic>[^,:]+):Count=(?P<n>\d+)$"
)


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """The record counts of one broker for the requested topics, read through JMX.

    Attributes:
        messages_in: By topic, the number of records received since the broker started.
        log_ends: By (topic, partition), the log end offset of the broker's replica.
    """

    messages_in: dict[str, int]
    log_ends: dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JmxClient:
    """A client of the JMX endpoints of all edge brokers.

    Attributes:
        addresses: HOST:PORT of each broker's JMX endpoint.
        java: Function that returns the path of the Java executable.
        jars: Function that returns the directory of Kafka's jars.
        user: JMX user name; "" if no authentication is required.
        password: Password of the user.
    """

    addresses: tuple[str, ...]
    java: Callable[[], Path]
    jars: Callable[[], Path]
    user: str = ""
    password: str = ""

    def read_metrics(self, topics: Sequence[str]) -> list[BrokerMetrics]:
        """Read the record counts of these topics from each broker.

        Args:
            topics: Names of the topics; other topics are omitted from the result.

        Returns:
            The metrics of each broker, in the order of `addresses`.

        Raises:
            Unavailable: A broker's JMX endpoint reports an error or does not answer within 60 s.
        """
        return [self._read_broker_metrics(address, topics) for address in self.addresses]

    def _read_broker_metrics(self, address: str, topics: Sequence[str]) -> BrokerMetrics:
        names = [
            name
            for topic in topics
            for name in (
                f"kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic={topic}",
                f"kafka.log:type=Log,name=LogEndOffset,topic={topic},partition=*",
            )
        ]
        command = [str(self.java()), "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars()}/*", _TOOL]
        command += [
            "--jmx-url",
            f"service:jmx:rmi:///jndi/rmi://{address}/jmxrmi",
            "--one-time",
            "--report-format",
            "properties",
        ]
        command += ["--jmx-auth-prop", f"{self.user}={self.password}"] if self.user else []
        command += [word for name in names for word in ("--object-name", name)] + [
            "--attributes",
            "Count,Value",
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=JMX_TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(
                f"JMX at {address} did not respond within {JMX_TIMEOUT_SECONDS:.0f} s"
            ) from error
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Unavailable(f"JMX at {address} reported an error: {last}")
        return parse_jmx_output(done.stdout)


def parse_jmx_output(text: str) -> BrokerMetrics:
    """Parse the output of Kafka's JmxTool for one broker.

    Args:
        text: Lines of the form `object name:attribute=value`. Lines other than `MessagesInPerSec`
            counts and `LogEndOffset` values are ignored.

    Returns:
        The metrics; both mappings are empty if no line matches.
    """
    log_ends, messages_in = {}, {}
    for line in text.splitlines():
        if match := _END.match(line):
            log_ends[match["topic"], int(match["partition"])] = int(match["n"])
        elif match := _IN.match(line):
            messages_in[match["topic"]] = int(match["n"])
    return BrokerMetrics(messages_in, log_ends)


def compare_with_metrics(
    counts: Mapping[tuple[str, int], int],
    metrics: Sequence[BrokerMetrics],
    replication: int,
    *,
    undisturbed: bool,
) -> tuple[MetricComparison, ...]:
    """Compare the number of records that a consumer read with the metrics of the brokers.

    The log end offsets of the brokers are always compared. The brokers' counters of incoming
    records are compared only if `undisturbed` is True, because a restarted broker counts from 0.
    The topics must be new and written without transactions, so that each offset is one record.

    Args:
        counts: Number of records that a consumer read, by (topic, partition).
        metrics: The metrics of every broker of the cluster.
        replication: Replication factor of the topics.
        undisturbed: Whether all brokers have been running since the topics were created.

    Returns:
        Two or three comparisons, in this order: the total number of records by log end offset; the
        number of replicas with the expected log end offset; and, if `undisturbed` is True, the
        total count of incoming records.
    """
    ends = [
        (at, broker.log_ends[at]) for broker in metrics for at in counts if at in broker.log_ends
    ]
    highest: dict[tuple[str, int], int] = {}
    for at, end in ends:
        highest[at] = max(end, highest.get(at, 0))
    comparisons = [
        MetricComparison(
            what="records, by log ends", ours=sum(counts.values()), brokers=sum(highest.values())
        ),
        MetricComparison(
            what="replicas whose log ends where we read to the end",
            ours=replication * len(counts),
            brokers=sum(end == counts[at] for at, end in ends),
        ),
    ]
    if undisturbed:
        by_topic: Counter[str] = Counter()
        for (topic, _), count in counts.items():
            by_topic[topic] += count
        incoming = sum(broker.messages_in.get(topic, 0) for broker in metrics for topic in by_topic)
        comparisons.append(
            MetricComparison(
                what="records, by MessagesInPerSec",
                ours=sum(by_topic.values()),
                brokers=incoming,
            )
        )
    return tuple(comparisons)
