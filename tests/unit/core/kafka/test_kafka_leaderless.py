"""A broker that died without a word: librdkafka then gives -1001 for an offset and no error, or
leaves partitions out.

Played where the library answers, as a 15 s wait in the real one precedes each such answer; the real
one is in tests/faults.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hourmark.config.groups import KafkaCluster
from hourmark.errors import Unavailable
from hourmark.kafka import clients
from hourmark.kafka.clients import Cluster, Offset, Partition

CLICK, VIEW = Partition("events.click", 0), Partition("events.view", 1)
INVALID = -1001


def answered(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class PlayedAdmin:
    """confluent_kafka's AdminClient: `offsets` are its answers, one after the other, the last for
    ever; `described` by topic.
    """

    def __init__(
        self,
        *offsets: Mapping[Partition, int | Exception],
        described: Mapping[str, Any] | None = None,
    ) -> None:
        self._offsets: Iterator[Mapping[Partition, Any]] = itertools.chain(
            offsets, itertools.repeat(offsets[-1] if offsets else {})
        )
        self._described = described or {}
        self.connected = 0

    def list_offsets(
        self, request: Mapping[TopicPartition, object], **_: object
    ) -> dict[TopicPartition, Future[Any]]:
        told = next(self._offsets)
        named = {tp: Partition(tp.topic, tp.partition) for tp in request}
        return {
            tp: answered(
                told[p]
                if isinstance(told[p], Exception)
                else SimpleNamespace(offset=told[p], leader_epoch=None)
            )
            for tp, p in named.items()
            if p in told
        }

    def describe_topics(self, wanted: Any, **_: object) -> dict[str, Future[Any]]:
        return {name: answered(self._described[name]) for name in wanted.topic_names}

    def list_topics(self, **_: object) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


Play = Callable[..., Cluster]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setattr("time.sleep", lambda _: None)

    def made(
        *offsets: Mapping[Partition, int | Exception], described: Mapping[str, Any] | None = None
    ) -> Cluster:
        played = PlayedAdmin(*offsets, described=described)

        def connect(*_: object, **__: object) -> PlayedAdmin:
            played.connected += 1
            return played

        monkeypatch.setattr(clients, "AdminClient", connect)
        return Cluster(KafkaCluster(bootstrap="127.0.0.1:1"), "edge")

    return made


def description(numbers: Iterable[int]) -> Any:
    return SimpleNamespace(
        topic_id="id", partitions=[SimpleNamespace(id=n, leader=None, replicas=[]) for n in numbers]
    )


@pytest.mark.parametrize("ask", [Cluster.ends, Cluster.starts])
@pytest.mark.parametrize(
    "told",
    [{CLICK: 7, VIEW: INVALID}, {CLICK: 7, VIEW: -1}, {CLICK: 7}],
    ids=["-1001", "-1", "left out"],
)
def test_a_partition_without_an_offset_is_unavailable_and_named(
    play: Play, ask: Callable[[Cluster, list[Partition]], object], told: dict[Partition, int]
) -> None:
    with pytest.raises(
        Unavailable,
        match=r"the edge Kafka cluster .* no offset for events\.view-1: no leader responds",
    ):
        ask(play(told), [CLICK, VIEW])


def test_a_leader_that_is_elected_meanwhile_is_waited_for(play: Play) -> None:
    assert play({CLICK: INVALID}, {}, {CLICK: 7}).ends([CLICK]) == {CLICK: 7}


@pytest.mark.parametrize(
    "code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError._NOENT]
)
def test_a_client_that_knows_another_leader_epoch_is_replaced_and_asks_again(
    play: Play, code: int
) -> None:
    """Seen after brokers were replaced: the partition has a leader, and this client named another's
    epoch, or knew of none.
    """
    cluster = play({CLICK: KafkaException(KafkaError(code))}, {CLICK: 7})
    admin: Any = cluster.admin
    assert cluster.ends([CLICK]) == {CLICK: 7} and admin.connected == 2


def test_an_answer_of_another_length_is_unavailable(play: Play) -> None:
    """What confluent_kafka raises then, for every partition."""
    broken = RuntimeError("Results length 1 is different from future-map length 2")
    with pytest.raises(Unavailable, match="Results length 1"):
        play({CLICK: broken, VIEW: broken}).ends([CLICK, VIEW])


@pytest.mark.parametrize("numbers", [(), (1, 2), (0, 2)])
def test_a_topic_whose_partitions_are_not_all_told_is_neither_there_nor_gone(
    play: Play, numbers: tuple[int, ...]
) -> None:
    with pytest.raises(
        Unavailable, match=r"returned only the partitions .* of topic events\.click"
    ):
        play(described={"events.click": description(numbers)}).topics(["events.click"])


def test_a_topic_is_gone_only_if_the_cluster_says_so(play: Play) -> None:
    unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    leaderless = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    cluster = play(described={"a": description([1, 0]), "b": unknown, "c": leaderless})
    assert {name: info.partitions for name, info in cluster.topics(["a", "b"]).items()} == {
        "a": (0, 1)
    }
    with pytest.raises(Unavailable, match="topic c"):
        cluster.topics(["a", "b", "c"])


def test_after_a_failure_a_new_client_asks(play: Play) -> None:
    """librdkafka waits for the broker that it took for the controller, and asks nobody else, until
    that broker comes back.
    """
    silence = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    cluster = play(
        described={
            "a": silence,
            "gone": KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)),
        }
    )
    admin: Any = cluster.admin
    assert cluster.topics(["gone"]) == {} and admin.connected == 1
    with pytest.raises(
        Unavailable, match=r"its address is still correct \(kafka\.edge\.bootstrap\)\."
    ):
        cluster.topics(["a"])
    assert admin.connected == 2


def test_names_of_a_cluster_that_is_away_are_unavailable(play: Play) -> None:
    with pytest.raises(Unavailable, match="the edge Kafka cluster"):
        play().names()


def test_an_offset_is_never_negative() -> None:
    assert Offset(0) == 0
    for code in (-1, INVALID):
        with pytest.raises(ValueError, match=f"{code} is not a valid offset"):
            Offset(code)
