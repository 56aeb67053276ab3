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
        aside = quarantined(database).get(event_type)
        if skip_record and aside is not None and not _is_bad(config, aside):
            raise UsageError(
                f"topic {aside.topic} partition {aside.partition} offset {aside.offset} can be staged now; resume without "
                "--skip-record"
            )
        aside = ledger.resume(database, event_type, skip_record=skip_record)
    if skip_record:
        _LOG.warning(
            "topic %s partition %d offset %d is left out (%s): no delivery service wrote it, so nobody was told that it is safe",
            aside.topic, aside.partition, aside.offset, aside.reason,
        )  # fmt: skip
    return aside


def _is_bad(config: Config, aside: Quarantined) -> bool:
    span = Span(topic=aside.topic, topic_id="", partition=aside.partition, start=aside.offset, end=aside.offset + 1)
    with SpanReader(config.kafka.central_cluster, config.kafka.max_message_bytes) as reader:
        for piece in reader.read([ReadSpan(span, 1)]):
            for chunk in piece.table.to_batches():
                try:
                    key_columns(chunk.column("key"))
                    schema_ids(chunk.column("value"))
                except Malformed:
                    return True
    return False
