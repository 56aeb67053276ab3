"""Staging a type again that was quarantined, with or without the record it was quarantined for."""

from __future__ import annotations

import logging

from hourmark.config import Config
from hourmark.errors import UsageError
from hourmark_etl.arrow import Malformed, key_columns, schema_ids
from hourmark_etl.ledger import batches as ledger
from hourmark_etl.ledger.existing import existing_ledger
from hourmark_etl.ledger.overview import Quarantined, quarantined
from hourmark_etl.model import Span
from hourmark_etl.staging.plan import ReadSpan
from hourmark_etl.staging.read import SpanReader

_LOG = logging.getLogger(__name__)


def resume_type(config: Config, event_type: str, *, skip_record: bool) -> Quarantined:
    """Clear the mark; a running driver stages the type with its next batch. UsageError if the record to skip is not bad."""
    with existing_ledger(config) as database:
        bad = quarantined(database).get(event_type)
        if skip_record and bad is not None and not _is_bad(config, bad):
            raise UsageError(
                f"topic {bad.topic} partition {bad.partition} offset {bad.offset} can be staged now; resume without --skip-record"
            )
        bad = ledger.resume(database, event_type, skip_record=skip_record)
    if skip_record:
        _LOG.warning(
            "topic %s partition %d offset %d is left out (%s): no delivery service wrote it, so nobody was told that it is safe",
            bad.topic, bad.partition, bad.offset, bad.reason,
        )  # fmt: skip
    return bad


def _is_bad(config: Config, bad: Quarantined) -> bool:
    span = Span(topic=bad.topic, topic_id="", partition=bad.partition, start=bad.offset, end=bad.offset + 1)
    with SpanReader(config.kafka.central_cluster, config.kafka.max_message_bytes) as reader:
        for piece in reader.read([ReadSpan(span, 1)]):
            for chunk in piece.table.to_batches():
                try:
                    key_columns(chunk.column("key"))
                    schema_ids(chunk.column("value"))
                except Malformed:
                    return True
    return False
