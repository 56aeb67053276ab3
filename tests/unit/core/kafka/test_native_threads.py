"""The compiled module's reader and sender, used by several threads and given what they cannot
take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

import hourmark_native as native
from hourmark.kafka.clients import supports_native_client
from hourmark_delivery_service.message import PackedMessages
from hourmark_delivery_service.queue.running_producer import RunningProducer, make_producer

MODULE: Any = native.MODULE
pytestmark = pytest.mark.skipif(MODULE is None, reason="there is no compiled module")
PARTITIONS_MAX = 1 << 24
THREADS, ROUNDS, RECORDS = 8, 100, 50


def reader() -> Any:
    """A reader of librdkafka's mock cluster, which has no topics."""
    assert supports_native_client(MODULE)
    settings = {"test.mock.num.brokers": "1", "group.id": "g", "bootstrap.servers": "127.0.0.1:1"}
    return MODULE.reader(tuple((name.encode(), value.encode()) for name, value in settings.items()))


@pytest.mark.parametrize("call", ["assign", "leave"])
@pytest.mark.parametrize(
    ("partitions", "error"),
    [
        (((b"t", 0, 0),) * (PARTITIONS_MAX + 1), ValueError),
        ([], (TypeError, SystemError)),
        (((b"t", 0),), ValueError),
        (((b"t", -1, 0),), ValueError),
    ],
    ids=["too many", "no tuple", "a pair", "below 0"],
)
def test_partitions_that_are_none_are_an_error_that_says_so(
    call: str, partitions: Any, error: Any
) -> None:
    one = reader()
    with pytest.raises(error) as found:
        getattr(MODULE, call)(one, partitions)
    assert "NULL without setting" not in str(found.value)
    MODULE.close(one)


@pytest.mark.parametrize("closing", [1, 4])
def test_a_reader_may_be_closed_while_another_thread_waits_for_records(closing: int) -> None:
    one, taken = reader(), list[Any]()
    began = threading.Event()

    def consume() -> None:
        began.set()
        taken.append(MODULE.consume(one, 10, 700))

    threads = [
        threading.Thread(target=consume),
        *(threading.Thread(target=MODULE.close, args=(one,)) for _ in range(closing)),
    ]
    threads[0].start()
    assert began.wait(10)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert taken == [([], [])], "it waited to its end"
    with pytest.raises(ValueError, match="closed"):
        MODULE.consume(one, 10, 0)
    MODULE.close(one)


def test_threads_that_send_the_same_bytes_each_hear_of_their_own_records() -> None:
    producer = RunningProducer(
        make_producer, {"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1}
    )
    assert producer.supports_packed
    ends = b"".join((4 * (n + 1)).to_bytes(4, "little") for n in range(RECORDS))
    same = PackedMessages(bytes(24) * RECORDS, b"abcd" * RECORDS, ends)
    together = threading.Barrier(THREADS)
    news: dict[int, list[tuple[int, bool]]] = {n: [] for n in range(THREADS * ROUNDS)}

    def noted(number: int) -> Callable[[int, KafkaError | None, bool], None]:
        return lambda failed, _, landed: news[number].append((failed, landed))

    def send(first: int) -> None:
        for number in range(first, first + ROUNDS):
            together.wait(30)
            next_at, error, under_way = producer.send_packed("t", same, 0, noted(number))
            assert (next_at, error, under_way) == (RECORDS, None, True)

    threads = [threading.Thread(target=send, args=(n * ROUNDS,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not all(news.values()):
        producer.poll()
        time.sleep(0.005)
    assert all(told == [(0, True)] for told in news.values())
    assert producer.close(10) == 0
