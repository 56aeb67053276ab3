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
from hourmark_etl.operators.tracing import topics as module
from hourmark_etl.operators.tracing.found import ById, ByPosition, Site
from hourmark_etl.operators.tracing.question import OfPlace
from hourmark_etl.operators.tracing.topics import Topics, type_of_topic

TOPIC = "events.click"
HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
PLACE = OfPlace("web", "/log", 5)


@pytest.fixture
def edge() -> Logs:
    return Logs()


@pytest.fixture
def central() -> Logs:
    return Logs()


@pytest.fixture
def topics(edge: Logs, central: Logs, monkeypatch: pytest.MonkeyPatch) -> Topics:
    monkeypatch.setattr(module, "Cluster", lambda _, name: edge if name == "edge" else central)
    monkeypatch.setattr(
        module, "CommittedReader", lambda _, name, **__: edge if name == "edge" else central
    )
    return Topics(
        KafkaSettings(central=KafkaCluster()),
        lambda _: None,
        now_ms=NOW_MS,
        records_max=50,
        chunk_records=10,
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
    edge: Logs, topics: Topics
) -> None:
    send(edge, HOUR_MS)  # the service was killed before the audit record
    promise(edge, HOUR_MS, other(1), start=100, end=200)
    at = promise(edge, 5 * HOUR_MS)
    looked = topics.audit_of_range(RANGE, HOUR_MS)
    assert looked.found is not None and (looked.found.offset, looked.found.at_ms) == (
        at,
        5 * HOUR_MS,
    )


def test_an_audit_record_that_is_not_there_is_not_there_for_sure_only_where_all_was_seen(
    edge: Logs, topics: Topics
) -> None:
    for n in range(60):
        promise(edge, n * HOUR_MS, other(n))
    assert topics.audit_of_range(RANGE, 30 * HOUR_MS).whole
    assert not topics.audit_of_range(RANGE, HOUR_MS).whole  # 50 are looked at
    edge.log_starts[Partition(AUDIT, 0)] = 20
    late, early = (topics.audit_of_range(RANGE, at * HOUR_MS) for at in (30, 15))
    assert late.whole and not early.whole and "the log has lost some" in early.where


def test_records_of_a_range_are_looked_for_around_its_audit_record_alone(
    edge: Logs, topics: Topics
) -> None:
    for n in range(40):
        send(edge, n * HOUR_MS, position=n)
    at = send(edge, 40 * HOUR_MS)
    sought = ByPosition(RANGE, "b" * 32, 0, 5)
    looked = topics.of_request(TOPIC, sought, 40 * HOUR_MS + 1000)
    assert looked.found is not None and looked.found.offset == at
    assert edge.read_records == 1
    assert topics.of_request(TOPIC, ByPosition(RANGE, "b" * 32, 0, 6), 40 * HOUR_MS).found is None
    assert (
        topics.of_request(TOPIC, ByPosition(other(1), "b" * 32, 0, 5), 40 * HOUR_MS).found is None
    )


def test_the_record_before_a_place_is_the_last_of_its_range_that_begins_there_or_before(
    edge: Logs, topics: Topics
) -> None:
    send(edge, HOUR_MS, position=40)
    for position in (30, 10, 20):
        send(edge, HOUR_MS, position=position)
    send(edge, HOUR_MS, range_id=other(1), position=25)
    found = {at: topics.last_of_request(TOPIC, RANGE, at, HOUR_MS).found for at in (9, 10, 29, 99)}
    assert {at: record and record.event["position"] for at, record in found.items()} == {
        9: None,
        10: 10,
        29: 20,
        99: 40,
    }
    assert topics.last_of_request(TOPIC, RANGE, 99, 2 * HOUR_MS).found is None


def test_a_place_is_looked_for_from_the_newest_on_and_no_further_than_said(
    edge: Logs, topics: Topics
) -> None:
    for n in range(100):
        promise(edge, n * HOUR_MS, other(n), start=n * 10, end=n * 10 + 10)
    looked = topics.audit_of_place(OfPlace("web", "/log", 805), 0, NOW_MS)
    assert looked.found is not None and looked.found.offset == 80
    assert edge.read_records == 20
    absent = topics.audit_of_place(OfPlace("web", "/log", 305), 0, NOW_MS)
    assert (
        absent.found is None
        and not absent.whole
        and "written from 1970-01-03T02:00" in absent.where
    )
    since = topics.audit_of_place(OfPlace("web", "/log", 305), 25 * HOUR_MS, 60 * HOUR_MS)
    assert since.found is not None and since.found.offset == 30


def test_of_files_that_were_read_under_one_path_the_newest_is_meant(
    edge: Logs, topics: Topics
) -> None:
    promise(edge, HOUR_MS, other(1), file_id="c" * 32)
    first = promise(edge, 2 * HOUR_MS, other(2), file_id="d" * 32)
    promise(edge, 3 * HOUR_MS, other(2), file_id="d" * 32)  # its acknowledgement was lost
    looked = topics.audit_of_place(PLACE, 0, NOW_MS)
    assert looked.found is not None and (looked.found.offset, looked.found.other_files) == (
        first,
        1,
    )
    named = topics.audit_of_place(OfPlace("web", "c" * 32, 5), 0, NOW_MS)
    assert named.found is not None and (named.found.offset, named.found.other_files) == (0, 0)


def test_a_copy_is_found_behind_records_of_a_service_whose_clock_is_ahead(
    edge: Logs, topics: Topics
) -> None:
    ahead = LineIds("a" * 32, "b" * 32, 0).make(EVENT.time_ms, 9, b"line")
    send(edge, 3 * HOUR_MS, ahead)
    at = send(edge, 2 * HOUR_MS)
    looked = topics.find(Site.EDGE, TOPIC, ById(EVENT), 2 * HOUR_MS, None, 0)
    assert looked.found is not None and looked.found.offset == at
    assert topics.find(Site.EDGE, TOPIC, ById(EVENT), 2 * HOUR_MS, None, 1).found is None


def test_offsets_tell_what_retention_took_from_what_never_was(edge: Logs, topics: Topics) -> None:
    for n in range(3):
        send(edge, n)
    edge.log_starts[Partition(TOPIC, 0)] = 1
    gone, there, never = (topics.at(Site.EDGE, TOPIC, 0, offset) for offset in (0, 1, 3))
    assert (gone.found, gone.whole) == (None, False) and there.found is not None
    assert (never.found, never.whole) == (None, True)
    assert (
        "no" in topics.at(Site.EDGE, TOPIC, 4, 0).where
        and "there is no such topic"
        in topics.find(Site.EDGE, "events.none", ById(EVENT), 0, NOW_MS).where
    )


def test_what_no_service_wrote_is_named_and_ends_its_step_alone(edge: Logs, topics: Topics) -> None:
    edge.append(TOPIC, 1, b"key", b"value")
    send(edge, 2)
    bad = topics.at(Site.EDGE, TOPIC, 0, 0)
    assert (
        bad.failed is not None
        and f"topic {TOPIC} partition 0 offset 0 holds no event" in bad.failed
    )
    assert topics.find(Site.EDGE, TOPIC, ById(EVENT), 0, NOW_MS).found is not None


def test_a_cluster_that_is_away_is_waited_for_once(edge: Logs, topics: Topics) -> None:
    edge.is_away = True
    for _ in range(3):
        assert topics.audit_of_range(RANGE, 0).failed == "the cluster did not answer"
        assert (
            topics.find(Site.EDGE, TOPIC, ById(EVENT), 0, 1).failed == "the cluster did not answer"
        )
    assert edge.questions == 1
    assert topics.at(Site.CENTRAL, "edge.events.click", 0, 0).failed is None


def test_an_audit_record_that_the_edge_does_not_tell_is_read_where_it_was_copied(
    edge: Logs, central: Logs, topics: Topics
) -> None:
    promise(edge, HOUR_MS, other(1))
    promise(central, HOUR_MS, topic="edge.hourmark.audit")
    assert topics.audit_of_range(RANGE, HOUR_MS).found is None  # the edge has all there is
    edge.log_starts[Partition(AUDIT, 0)] = 1
    copied = topics.audit_of_range(RANGE, HOUR_MS).found
    assert copied is not None and copied.topic == "edge.hourmark.audit"
    edge.is_away = True
    assert topics.audit_of_place(PLACE, 0, NOW_MS).found == copied
    central.is_away = True
    assert topics.audit_of_range(RANGE, HOUR_MS).failed is not None


def test_types_of_topics() -> None:
    assert type_of_topic("events.a", "edge") == (Site.EDGE, "a")
    assert type_of_topic("edge.events.a", "edge") == (Site.CENTRAL, "a")
    assert (
        type_of_topic("edge.events.a", None) is None
        and type_of_topic("hourmark.audit", "edge") is None
    )
