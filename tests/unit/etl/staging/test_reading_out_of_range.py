"""A broker refuses an offset: loss only if the log itself no longer has it, and a log that nobody
tells of is no loss.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

import hourmark_native as native
from hourmark.config.groups import KafkaCluster
from hourmark.errors import HourmarkError, Unavailable
from hourmark.kafka import committed_reader
from hourmark.kafka.clients import Partition
from hourmark.kafka.packed_reader import PackedReader
from hourmark_etl.errors import DataLoss
from hourmark_etl.model import OffsetSpan
from hourmark_etl.staging import read
from hourmark_etl.staging.plan import ReadSpan
from hourmark_etl.staging.read import SpanReader

CLICK = Partition("edge.events.click", 0)


class RefusingConsumer:
    """librdkafka's consumer, which gives its error for an offset out of range."""

    def assign(self, *_: object) -> None:
        pass

    unassign = close = assign

    def consume(self, *_: object) -> list[Any]:
        error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
        return [
            SimpleNamespace(
                error=lambda: error,
                topic=lambda: CLICK.topic,
                partition=lambda: 0,
                offset=lambda: 5,
            )
        ]


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
    monkeypatch.setattr(read, "Cluster", lambda *_: log)
    monkeypatch.setattr(native, "MODULE", None)
    monkeypatch.setattr(committed_reader, "Consumer", lambda *_, **__: RefusingConsumer())
    reader = SpanReader(KafkaCluster(), 1 << 20)
    with pytest.raises(raised):
        list(
            reader.read(
                [
                    ReadSpan(
                        OffsetSpan(topic=CLICK.topic, topic_id="id", partition=0, start=5, end=9),
                        1 << 20,
                    )
                ]
            )
        )


@pytest.mark.parametrize("packed", [True, False])
def test_a_largest_message_of_the_user_hinders_no_reading(
    monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    if not packed:
        monkeypatch.setattr(native, "MODULE", None)
    cluster = KafkaCluster(
        bootstrap="127.0.0.1:1", properties={"message.max.bytes": "10485760", "log_level": "0"}
    )
    made: list[object] = []

    class Noted(PackedReader):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            made.append(self)

    monkeypatch.setattr("hourmark_etl.staging.read.PackedReader", Noted)
    with SpanReader(cluster, 10 << 20):
        assert bool(made) is (native.MODULE is not None)
