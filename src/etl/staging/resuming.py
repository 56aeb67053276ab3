"""Staging a type again that was set aside, with or without the record it was set aside for."""

from __future__ import annotations

import logging

from etl.ledger import staging as ledger
from etl.ledger.database import Database
from etl.ledger.overview import SetAside, set_aside
from etl.ledger.rows import Span
from etl.staging.columns import Malformed, key_columns, schema_ids
from etl.staging.planner import ReadSpan
from etl.staging.reading import SpanReader
from hourmark.config import Config
from hourmark.errors import UsageError

_LOG = logging.getLogger(__name__)


def resume_type(config: Config, event_type: str, *, skip_record: bool) -> SetAside:
    """Clear the mark; a running driver stages the type with its next batch. UsageError if the record to skip is not bad."""
    with Database(config.etl.ledger) as database:
        aside = set_aside(database).get(event_type)
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


def _is_bad(config: Config, aside: SetAside) -> bool:
    span = Span(aside.topic, "", aside.partition, aside.offset, aside.offset + 1)
    with SpanReader(config.kafka.central_cluster, config.kafka.max_message_bytes) as reader:
        for piece in reader.read([ReadSpan(span, 1)]):
            for chunk in piece.table.to_batches():
                try:
                    key_columns(chunk.column("key"))
                    schema_ids(chunk.column("value"))
                except Malformed:
                    return True
    return False
