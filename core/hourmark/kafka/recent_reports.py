"""The most recent host reports in the topic `hourmark.hosts`, read from its end."""

from __future__ import annotations

import contextlib
from typing import Final

from hourmark.avro.framing import unframe
from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka.clients import Cluster, Partition
from hourmark.kafka.committed_reader import CommittedReader
from hourmark.kafka.topic_names import HOSTS
from hourmark.records.host_reports import HostReport

RECORDS_MAX: Final = 5000  # a host reports every 2 s: some minutes for dozens of hosts
_READ_S: Final = 5.0


def recent_reports(edge: KafkaCluster) -> dict[str, HostReport]:
    """Read the latest host report of each host from the Kafka topic `hourmark.hosts`.

    Tailers and delivery services send host reports regularly to report their progress. Only the
    last 5,000 records of each partition are read.

    Args:
        edge: The edge cluster.

    Returns:
        A dict that maps each host id to its latest report. Empty if the topic does not exist.

    Raises:
        Unavailable: The cluster does not answer, or a record is not a host report.
    """
    cluster = Cluster(edge, "edge")
    info = cluster.topics([HOSTS]).get(HOSTS)
    partitions = (
        [Partition(HOSTS, number) for number in info.partitions] if info is not None else []
    )
    starts, ends = cluster.starts(partitions), cluster.ends(partitions)
    found: dict[str, HostReport] = {}
    with contextlib.closing(CommittedReader(edge, "edge", stall_s=_READ_S)) as reader:
        for runs in reader.read(
            {p: (max(starts[p], ends[p] - RECORDS_MAX), ends[p]) for p in partitions}
        ):
            for value in (record.value() for run in runs for record in run.records):
                if value is None:
                    continue
                try:
                    report = HostReport.decode(unframe(value)[1])
                except ValueError as error:
                    raise Unavailable(
                        f"a report in {HOSTS} of the edge cluster cannot be read: {error}"
                    ) from error
                found[report.host_id] = report
    return found
