"""What a trace reads of Kafka: within which bounds, how much at most, and what it says of what
retention took.
"""

from __future__ import annotations

import pytest
from tests.support import tracing
from tests.support.kafka_logs import Logs
from tests.support.records import audit_record
from tests.support.tracing import EVENT, RANGE

from hourmark.avro.framing import framing_header
from hourmark.config.groups import KafkaCluster, KafkaSettings
from hourmark.kafka.clients import Partition
from hourmark.kafka.topic_names import AUDIT
from hourmark.records.event_id import EventId, LineIds
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark_etl.operators.tracing import kafka_search as module
from hourmark_etl.operators.tracing.kafka_search import KafkaSearch, parse_events_topic
from hourmark_etl.operators.tracing.query import FilePositionQuery
from hourmark_etl.operators.tracing.results import ByEventId, ByRangePosition, ClusterRole

TOPIC = "events.click"
HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
PLACE = FilePositionQuery("web", "/log", 5)


@pytest.fixture
def edge() -> Logs:
    return Logs()


@pytest.fixture
def central() -> Logs:
    return Logs()


@pytest.fixture
def topics(edge: Logs, central: Logs, monkeypatch: pytest.MonkeyPatch) -> KafkaSearch:
    monkeypatch.setattr(module, "Cluster", lambda _, name: edge if name == "edge" else central)
    monkeypatch.setattr(
        module, "CommittedReader", lambda _, name, **__: edge if name == "edge" else central
    )
    return KafkaSearch(
        KafkaSettings(central=KafkaCluster()), lambda _: None, now_ms=NOW_MS, records_max=50
    )


def send(
    edge: Logs, at_ms: int, event_id: EventId = EVENT, range_id: RangeId = RANGE, position: int = 5
) -> int:
    value = framing_header(1) + tracing.datum(tracing.event(event_id) | {"position": position})
    return edge.append(TOPIC, at_ms, RecordKey(event_id, range_id).encode(), value)


def promise(
    edge: Logs, at_ms: int, range_id: RangeId = RANGE, topic: str = AUDIT, **more: object
) -> int:
    record = audit_record(range_id=range_id, **more)
    return edge.append(topic, at_ms, bytes(range_id), framing_header(1) + record.encode())


def other(number: int) -> RangeId:
    return RangeId(number.to_bytes(8, "big"))


def test_an_audit_record_is_found_although_its_range_was_acknowledged_hours_after_its_first_try(
    edge: Logs, topics: KafkaSearch
) -> None:
    send(edge, HOUR_MS)  # the service was killed before the audit record
    promise(edge, HOUR_MS, other(1), start=100, end=200)
    at = promise(edge, 5 * HOUR_MS)
    looked = topics.find_audit_record_of_range(RANGE, HOUR_MS)
    assert looked.value is not None and (looked.value.offset, looked.value.at_ms) == (
        at,
        5 * HOUR_MS,
    )


def test_an_audit_record_that_is_not_there_is_not_there_for_sure_only_where_all_was_seen(
    edge: Logs, topics: KafkaSearch
) -> None:
    for n in range(60):
        promise(edge, n * HOUR_MS, other(n))
    assert topics.find_audit_record_of_range(RANGE, 30 * HOUR_MS).is_complete
    assert not topics.find_audit_record_of_range(RANGE, HOUR_MS).is_complete  # 50 are looked at
    edge.log_starts[Partition(AUDIT, 0)] = 20
    late, early = (topics.find_audit_record_of_range(RANGE, at * HOUR_MS) for at in (30, 15))
    assert (
        late.is_complete
        and not early.is_complete
        and "some are no longer in the log" in early.searched
    )


def test_records_of_a_range_are_looked_for_around_its_audit_record_alone(
    edge: Logs, topics: KafkaSearch
) -> None:
    for n in range(40):
        send(edge, n * HOUR_MS, position=n)
    at = send(edge, 40 * HOUR_MS)
    sought = ByRangePosition(RANGE, "b" * 32, 0, 5)
    looked = topics.find_event_near_audit(TOPIC, sought, 40 * HOUR_MS + 1000)
    assert looked.value is not None and looked.value.offset == at
    assert edge.read_records == 1
    assert (
        topics.find_event_near_audit(
            TOPIC, ByRangePosition(RANGE, "b" * 32, 0, 6), 40 * HOUR_MS
        ).value
        is None
    )
    assert (
        topics.find_event_near_audit(
            TOPIC, ByRangePosition(other(1), "b" * 32, 0, 5), 40 * HOUR_MS
        ).value
        is None
    )


def test_the_record_before_a_place_is_the_last_of_its_range_that_begins_there_or_before(
    edge: Logs, topics: KafkaSearch
) -> None:
    send(edge, HOUR_MS, position=40)
    for position in (30, 10, 20):
        send(edge, HOUR_MS, position=position)
    send(edge, HOUR_MS, range_id=other(1), position=25)
    found = {
        at: topics.find_last_event_before(TOPIC, RANGE, at, HOUR_MS).value for at in (9, 10, 29, 99)
    }
    assert {at: record and record.event["position"] for at, record in found.items()} == {
        9: None,
        10: 10,
        29: 20,
        99: 40,
    }
    assert topics.find_last_event_before(TOPIC, RANGE, 99, 2 * HOUR_MS).value is None


def test_a_place_is_looked_for_from_the_newest_on_and_no_further_than_said(
    edge: Logs, topics: KafkaSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 10)
    for n in range(100):
        promise(edge, n * HOUR_MS, other(n), start=n * 10, end=n * 10 + 10)
    looked = topics.find_audit_record_of_line(FilePositionQuery("web", "/log", 805), 0, NOW_MS)
    assert looked.value is not None and looked.value.offset == 80
    assert edge.read_records == 20
    absent = topics.find_audit_record_of_line(FilePositionQuery("web", "/log", 305), 0, NOW_MS)
    assert (
        absent.value is None
        and not absent.is_complete
        and "written from 1970-01-03T02:00" in absent.searched
    )
    since = topics.find_audit_record_of_line(
        FilePositionQuery("web", "/log", 305), 25 * HOUR_MS, 60 * HOUR_MS
    )
    assert since.value is not None and since.value.offset == 30


def test_of_files_that_were_read_under_one_path_the_newest_is_meant(
    edge: Logs, topics: KafkaSearch
) -> None:
    promise(edge, HOUR_MS, other(1), file_id="c" * 32)
    first = promise(edge, 2 * HOUR_MS, other(2), file_id="d" * 32)
    promise(edge, 3 * HOUR_MS, other(2), file_id="d" * 32)  # its acknowledgement was lost
    looked = topics.find_audit_record_of_line(PLACE, 0, NOW_MS)
    assert looked.value is not None and (looked.value.offset, looked.value.other_files) == (
        first,
        1,
    )
    named = topics.find_audit_record_of_line(FilePositionQuery("web", "c" * 32, 5), 0, NOW_MS)
    assert named.value is not None and (named.value.offset, named.value.other_files) == (0, 0)


def test_a_copy_is_found_behind_records_of_a_service_whose_clock_is_ahead(
    edge: Logs, topics: KafkaSearch
) -> None:
    ahead = LineIds("a" * 32, "b" * 32, 0).make(EVENT.time_ms, 9, b"line")
    send(edge, 3 * HOUR_MS, ahead)
    at = send(edge, 2 * HOUR_MS)
    looked = topics.find_event(ClusterRole.EDGE, TOPIC, ByEventId(EVENT), 2 * HOUR_MS, None, 0)
    assert looked.value is not None and looked.value.offset == at
    assert (
        topics.find_event(ClusterRole.EDGE, TOPIC, ByEventId(EVENT), 2 * HOUR_MS, None, 1).value
        is None
    )


def test_offsets_tell_what_retention_took_from_what_never_was(
    edge: Logs, topics: KafkaSearch
) -> None:
    for n in range(3):
        send(edge, n)
    edge.log_starts[Partition(TOPIC, 0)] = 1
    gone, there, never = (
        topics.read_record(ClusterRole.EDGE, TOPIC, 0, offset) for offset in (0, 1, 3)
    )
    assert (gone.value, gone.is_complete) == (None, False) and there.value is not None
    assert (never.value, never.is_complete) == (None, True)
    assert (
        "no" in topics.read_record(ClusterRole.EDGE, TOPIC, 4, 0).searched
        and "the topic does not exist"
        in topics.find_event(ClusterRole.EDGE, "events.none", ByEventId(EVENT), 0, NOW_MS).searched
    )


def test_what_no_service_wrote_is_named_and_ends_its_step_alone(
    edge: Logs, topics: KafkaSearch
) -> None:
    edge.append(TOPIC, 1, b"key", b"value")
    send(edge, 2)
    bad = topics.read_record(ClusterRole.EDGE, TOPIC, 0, 0)
    assert (
        bad.error is not None and f"topic {TOPIC} partition 0 offset 0 is not an event" in bad.error
    )
    assert topics.find_event(ClusterRole.EDGE, TOPIC, ByEventId(EVENT), 0, NOW_MS).value is not None


def test_a_cluster_that_is_away_is_waited_for_once(edge: Logs, topics: KafkaSearch) -> None:
    edge.is_away = True
    for _ in range(3):
        assert topics.find_audit_record_of_range(RANGE, 0).error == "the cluster did not answer"
        assert (
            topics.find_event(ClusterRole.EDGE, TOPIC, ByEventId(EVENT), 0, 1).error
            == "the cluster did not answer"
        )
    assert edge.questions == 1
    assert topics.read_record(ClusterRole.CENTRAL, "edge.events.click", 0, 0).error is None


def test_an_audit_record_that_the_edge_does_not_tell_is_read_where_it_was_copied(
    edge: Logs, central: Logs, topics: KafkaSearch
) -> None:
    promise(edge, HOUR_MS, other(1))
    promise(central, HOUR_MS, topic="edge.hourmark.audit")
    assert (
        topics.find_audit_record_of_range(RANGE, HOUR_MS).value is None
    )  # the edge has all there is
    edge.log_starts[Partition(AUDIT, 0)] = 1
    copied = topics.find_audit_record_of_range(RANGE, HOUR_MS).value
    assert copied is not None and copied.topic == "edge.hourmark.audit"
    edge.is_away = True
    assert topics.find_audit_record_of_line(PLACE, 0, NOW_MS).value == copied
    central.is_away = True
    assert topics.find_audit_record_of_range(RANGE, HOUR_MS).error is not None


def test_types_of_topics() -> None:
    assert parse_events_topic("events.a", "edge") == (ClusterRole.EDGE, "a")
    assert parse_events_topic("edge.events.a", "edge") == (ClusterRole.CENTRAL, "a")
    assert (
        parse_events_topic("edge.events.a", None) is None
        and parse_events_topic("hourmark.audit", "edge") is None
    )
