"""A broker refuses an offset: loss only if the log itself no longer has it, and a log that nobody tells of is no loss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from etl.errors import DataLoss
from etl.ledger.rows import Span
from etl.staging import reading
from etl.staging.planner import ReadSpan
from etl.staging.reading import SpanReader
from hourmark.config import KafkaCluster
from hourmark.errors import HourmarkError, Unavailable
from hourmark.kafka import Partition

CLICK = Partition("edge.events.click", 0)


class RefusingConsumer:
    """librdkafka's consumer, which gives its error for an offset out of range."""

    def assign(self, *_: object) -> None:
        pass

    unassign = close = assign

    def consume(self, *_: object) -> list[Any]:
        error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
        return [SimpleNamespace(error=lambda: error, topic=lambda: CLICK.topic, partition=lambda: 0, offset=lambda: 5)]


@pytest.mark.parametrize(
    ("start", "end", "raised"),
    [
        (6, 9, DataLoss),
        (0, 4, DataLoss),
        (5, 9, Unavailable),
        (0, 5, Unavailable),
        (None, 9, Unavailable),
        (0, None, Unavailable),
    ],
)
def test_only_what_the_log_no_longer_has_is_lost(
    monkeypatch: pytest.MonkeyPatch, start: int | None, end: int | None, raised: type[HourmarkError]
) -> None:
    def told(offset: int | None) -> dict[Partition, int]:
        if offset is None:
            raise Unavailable("no leader")
        return {CLICK: offset}

    log = SimpleNamespace(starts=lambda _: told(start), ends=lambda _, *, committed: told(end))
    monkeypatch.setattr(reading, "Cluster", lambda *_: log)
    monkeypatch.setattr(reading, "Consumer", lambda *_, **__: RefusingConsumer())
    reader = SpanReader(KafkaCluster(), 1 << 20)
    with pytest.raises(raised):
        list(reader.read([ReadSpan(Span(CLICK.topic, "id", 0, 5, 9), 1 << 20)]))
