"""What was acknowledged: distinct events of audited ranges, from the audit topic at the edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hourmark.avro.framing import unframe
from hourmark.config.loading import Config
from hourmark.kafka.compacted_topic import read_topic
from hourmark.kafka.topic_names import AUDIT
from hourmark.records.audit import AuditRecord


def acknowledged(config: Config) -> Counter[str]:
    """Return the number of acknowledged events by type, from the edge audit topic.

    A range that was sent twice is counted once.
    """
    values = (value for _, value in read_topic(config.kafka.edge, AUDIT, cluster_name="edge"))
    return count_promises(
        AuditRecord.decode(unframe(value)[1]) for value in values if value is not None
    )


def count_promises(records: Iterable[AuditRecord]) -> Counter[str]:
    """Return the number of promised events by type, counting each range id once."""
    counts: Counter[str] = Counter()
    for record in {record.range_id: record for record in records}.values():
        for promise in record.promised:
            counts[promise.event_type] += promise.count
    return counts
