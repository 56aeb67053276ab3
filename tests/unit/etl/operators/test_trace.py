"""A trace on servers in memory: what is told of an event at each place of its way, and of what does
not answer or is gone.
"""

from __future__ import annotations

import dataclasses
import json

import pytest
from tests.support.records import HOUR, audit_record, tailer
from tests.support.tracing import EVENT, POSITION, TYPE, Servers

from hourmark.errors import UsageError
from hourmark_etl.operators.tracing.query import (
    EventQuery,
    FilePositionQuery,
    HostTrace,
    KafkaRecordQuery,
    TraceQuery,
    parse_host_trace,
    parse_query,
)
from hourmark_etl.operators.tracing.results import TraceResults
from hourmark_etl.operators.tracing.summary import (
    StepState,
    TraceStep,
    TraceSummary,
    TraceVerdict,
    summarize_trace,
)
from hourmark_etl.operators.tracing.tracer import EventTracer, SendWindow

PLACE = FilePositionQuery("web", "/log", POSITION)
AN_EVENT = EventQuery(EVENT, TYPE)
QUESTIONS: list[TraceQuery] = [
    PLACE,
    AN_EVENT,
    KafkaRecordQuery("events.click", 0, 7),
    KafkaRecordQuery("edge.events.click", 0, 9),
]


@pytest.fixture
def servers() -> Servers:
    """An acknowledged event, mirrored and staged, in a closed bucket."""
    made = Servers(reports=(tailer(),))
    made.acknowledge()
    made.write()
    made.copy()
    made.stage(HOUR)
    made.close()
    return made


def walked(servers: Servers, question: TraceQuery = AN_EVENT) -> TraceResults:
    return EventTracer(
        servers, servers, HOUR.length_s, SendWindow(since_ms=0, until_ms=1 << 45)
    ).trace(question)


def story(
    servers: Servers, question: TraceQuery = AN_EVENT, host: HostTrace | None = None
) -> TraceSummary:
    return summarize_trace(walked(servers, question), host)


def step(found: TraceSummary, name: str) -> TraceStep:
    (one,) = (s for s in found.steps if s.name == name)
    return one


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_every_way_to_name_it_tells_the_same_of_every_step(
    servers: Servers, question: TraceQuery
) -> None:
    found = story(servers, question)
    assert [s for s in found.steps if s.name != "reported"] == [*story(servers).steps]
    assert (found.verdict, {s.state for s in found.steps}) == (
        TraceVerdict.IN_BUCKET,
        {StepState.YES},
    )
    assert (
        "part-00000.avro, record 4 from 0; bucket 2027-01-15T08, closed as proved"
        in step(found, "bucket").what
    )
    assert (
        "topic events.click partition 0 offset 7, written at 2027-01-15T08:00:02.000Z"
        in step(found, "edge").what
    )
    assert "topic edge.events.click partition 0 offset 9" in step(found, "mirrored").what
    assert "central partition 0 offset 9" in step(found, "staged").what
    assert (
        "at 2027-01-15T08:00:02.001Z: range 3132333435363738 [0, 10) of /log on web"
        in step(found, "acknowledged").what
    )
    assert "hourmark bucket cat click 2027-01-15T08" in found.next_step


def test_each_place_of_its_way_is_told_with_what_comes_next() -> None:
    servers = Servers()
    assert story(servers).verdict is TraceVerdict.NOT_FOUND
    servers.write()
    found = story(servers)
    assert (found.verdict, step(found, "acknowledged").state) == (
        TraceVerdict.IN_KAFKA,
        StepState.NO,
    )
    assert "it was never acknowledged" in step(found, "acknowledged").what
    assert "the mirror copies from offset 0" in step(found, "mirrored").what
    servers.acknowledge()
    servers.copy()
    found = story(servers)
    assert (
        found.verdict is TraceVerdict.MIRRORED
        and "staging continues from offset 0" in step(found, "staged").what
    )
    servers.stage()
    found = story(servers)
    assert (
        found.verdict is TraceVerdict.STAGED
        and "listed for no bucket yet" in step(found, "staged").what
    )
    assert (
        step(found, "bucket").state is StepState.NO
        and "next hour of click to close is 2027-01-15T08" in step(found, "bucket").what
    )
    assert "hourmark bucket why click 2027-01-15T08" in found.next_step


def test_one_cluster_has_no_step_of_a_mirror() -> None:
    servers = Servers(alias=None)
    servers.acknowledge()
    servers.write()
    servers.stage()
    found = story(servers)
    assert found.verdict is TraceVerdict.STAGED and "mirrored" not in {s.name for s in found.steps}
    assert step(found, "edge").state is StepState.YES


def test_an_event_that_came_late_is_told_so(servers: Servers) -> None:
    servers.close(HOUR.next())
    assert "as late: its own hour is 2027-01-15T08" in step(story(servers), "bucket").what


def test_a_dead_letter_says_why() -> None:
    servers = Servers(event_type="dead-letters")
    servers.acknowledge()
    servers.write(reason="bad_json", detail="no object \x1b[31m")
    found = story(servers, PLACE)
    assert found.summary.startswith("a dead letter, in Kafka")
    assert step(found, "dead letter").what == r"bad_json: no object \x1b[31m"


@pytest.mark.parametrize(
    ("away", "verdict"),
    [
        ({"buckets"}, TraceVerdict.STAGED),
        ({"buckets", "ledger"}, TraceVerdict.MIRRORED),
        ({"buckets", "ledger", "central", "mirror"}, TraceVerdict.IN_KAFKA),
        ({"buckets", "ledger", "central", "mirror", "edge"}, TraceVerdict.UNKNOWN),
        ({"edge", "audit", "central", "mirror"}, TraceVerdict.IN_BUCKET),
        ({"ledger", "edge", "central"}, TraceVerdict.IN_BUCKET),
    ],
)
def test_a_server_that_is_away_is_named_and_the_others_answer(
    servers: Servers, away: set[str], verdict: TraceVerdict
) -> None:
    servers.away = frozenset(away)
    found = story(servers)
    assert found.verdict is verdict
    unreachable = {s.name for s in found.steps if s.state is StepState.UNREACHABLE}
    assert ("bucket" in unreachable) == ("buckets" in away)
    assert all("did not answer" in s.what for s in found.steps if s.state is StepState.UNREACHABLE)


def test_what_the_edge_does_not_tell_any_more_is_found_on_the_central_cluster(
    servers: Servers,
) -> None:
    servers.row = servers.in_bucket = None
    servers.next_staged = 0
    servers.away = frozenset({"edge"})
    found = story(servers)
    assert (found.verdict, step(found, "acknowledged").state) == (
        TraceVerdict.MIRRORED,
        StepState.YES,
    )


def test_what_retention_took_is_not_found_and_not_lost(servers: Servers) -> None:
    servers.edge = servers.central = servers.audit = servers.row = servers.in_bucket = None
    servers.partly = frozenset({"edge", "audit"})
    found = story(servers)
    assert (found.verdict, step(found, "edge").state) == (
        TraceVerdict.NOT_FOUND,
        StepState.NOT_FOUND,
    )
    assert "does not mean that it is lost" in found.summary


def test_a_bucket_is_told_when_kafka_holds_nothing_any_more(servers: Servers) -> None:
    servers.edge = servers.central = servers.audit = servers.row = None
    servers.partly = frozenset({"edge", "central", "audit"})
    found = story(servers)
    assert (found.verdict, step(found, "acknowledged").state) == (
        TraceVerdict.IN_BUCKET,
        StepState.NOT_ASKED,
    )


@pytest.mark.parametrize("question", [PLACE, AN_EVENT], ids=str)
def test_a_row_whose_bucket_closed_without_it_is_lost(
    servers: Servers, question: TraceQuery
) -> None:
    servers.in_bucket = None
    found = story(servers, question)
    assert (
        found.verdict is TraceVerdict.LOST and "no bucket contains it" in step(found, "lost").what
    )


def test_a_row_that_came_after_its_hour_had_closed_waits_for_the_next(servers: Servers) -> None:
    servers.in_bucket = None
    assert servers.row is not None
    servers.row = dataclasses.replace(servers.row, listed=None)
    assert story(servers).verdict is TraceVerdict.STAGED


def test_a_row_whose_bucket_is_frozen_and_not_closed_yet_is_staged(servers: Servers) -> None:
    servers.in_bucket, servers.frontier = None, HOUR
    assert story(servers).verdict is TraceVerdict.STAGED


def test_what_staging_has_passed_and_nobody_has_is_lost(servers: Servers) -> None:
    servers.row = servers.in_bucket = None
    found = story(servers)
    assert (
        found.verdict is TraceVerdict.LOST
        and "staging has passed its record and is at offset 10" in step(found, "lost").what
    )


def test_what_the_mirror_has_passed_and_did_not_copy_is_lost(servers: Servers) -> None:
    servers.row = servers.in_bucket = servers.central = None
    found = story(servers)
    assert (
        found.verdict is TraceVerdict.LOST
        and "the mirror has passed its record and is at offset 8" in step(found, "lost").what
    )


@pytest.mark.parametrize("unsure", ["buckets", "ledger"])
def test_nothing_is_called_lost_while_a_place_was_not_seen_whole(
    servers: Servers, unsure: str
) -> None:
    servers.row = servers.in_bucket = None
    servers.partly = frozenset({unsure})
    assert story(servers).verdict is TraceVerdict.MIRRORED
    servers.partly, servers.away = frozenset(), frozenset({unsure})
    assert story(servers).verdict is TraceVerdict.MIRRORED


def test_what_is_taken_in_while_a_trace_looks_is_not_called_lost(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, bucket, staging = servers.row, servers.in_bucket, servers.staging_offset
    servers.row = servers.in_bucket = None

    def meanwhile(central: object) -> object:
        servers.row, servers.in_bucket = row, bucket
        return staging(central)  # type: ignore[arg-type]  # what the walk asks for

    monkeypatch.setattr(servers, "staging_offset", meanwhile)
    assert story(servers).verdict is TraceVerdict.IN_BUCKET


@pytest.mark.parametrize(
    ("blanks", "more"),
    [(0, ""), (1, ", or a blank line after it"), (None, ", or a blank line after it")],
)
def test_a_later_line_of_a_record_is_told_as_that_record(
    servers: Servers, blanks: int | None, more: str
) -> None:
    servers.acknowledge(blanks=blanks)
    facts = walked(servers, FilePositionQuery("a" * 32, "b" * 32, POSITION + 1, 0))
    assert (facts.begins_at, facts.event_id) == (POSITION, EVENT)
    assert summarize_trace(facts).verdict is TraceVerdict.IN_BUCKET
    assert summarize_trace(facts).summary == (
        f"a later line of the record that begins at byte 5{more}; that record is: in a "
        "closed bucket"
    )


def test_a_place_in_an_acknowledged_range_before_its_first_record_says_so(servers: Servers) -> None:
    servers.acknowledge(blanks=1)
    found = story(servers, FilePositionQuery("a" * 32, "b" * 32, POSITION - 1, 0))
    assert (
        found.verdict is TraceVerdict.ACKNOWLEDGED
        and "A blank line produces no record" in found.next_step
    )
    assert "1 blank line" in step(found, "acknowledged").what


@pytest.mark.parametrize(
    "change", [{"host": "web-2"}, {"file": "/log.1"}, {"generation": 1}, {"offset": 10}]
)
def test_another_host_file_generation_or_offset_is_another_place(
    servers: Servers, change: dict[str, object]
) -> None:
    # fields
    assert story(servers, dataclasses.replace(PLACE, **change)).verdict is TraceVerdict.NOT_FOUND  # type: ignore[arg-type]


def test_a_path_that_older_files_had_is_told(servers: Servers) -> None:
    assert servers.audit is not None
    servers.audit = dataclasses.replace(servers.audit, other_files=2)
    assert (
        "2 older files of this path contained this position too"
        in step(story(servers, PLACE), "acknowledged").what
    )


def test_what_a_places_host_last_said_is_told_with_its_losses() -> None:
    servers = Servers(
        reports=(
            tailer(pending_bytes=20),
            tailer(source="db", lost_bytes=70, unknown_losses=2),
            tailer(host_name="b"),
        )
    )
    found = story(servers, PLACE)
    assert (
        found.verdict is TraceVerdict.NOT_FOUND
        and "has lost lines before they were read" in found.next_step
    )
    first, second = step(found, "reported").what.split("; tailer")
    assert (
        "tailer web source app" in first
        and "had caught up at 2027-01-15T09:00:00.001Z, 20 bytes pending; received at" in first
    )
    assert "70 bytes lost before they were read, 2 occasions of unknown loss" in second
    unheard = step(story(servers, FilePositionQuery("nobody", "/log", 5)), "reported")
    assert (
        unheard.state is StepState.NO
        and "no tailer of that host id or name has ever reported" in unheard.what
    )


def test_a_place_whose_audit_record_is_gone_is_found_in_the_buckets_of_the_hours_asked_for(
    servers: Servers,
) -> None:
    servers.edge = servers.central = servers.audit = servers.row = None
    servers.partly = frozenset({"edge", "central", "audit"})
    old = dataclasses.replace(PLACE, event_type=TYPE)

    def of(since_ms: int) -> TraceResults:
        window = SendWindow(since_ms=since_ms, until_ms=HOUR.end_ms + 3 * 3_600_000)
        return EventTracer(servers, servers, HOUR.length_s, window).trace(old)

    before = of((HOUR.start_s - 7200) * 1000)
    assert summarize_trace(before).verdict is TraceVerdict.IN_BUCKET and before.event_id == EVENT
    after = summarize_trace(of(HOUR.end_ms))
    assert after.verdict is TraceVerdict.NOT_FOUND
    assert (
        "closed buckets of click from 2027-01-15T09 to 2027-01-15T12" in step(after, "bucket").what
    )
    with pytest.raises(UsageError, match="--since and --until"):
        of(0)
    servers.away = frozenset({"buckets"})
    assert summarize_trace(of(HOUR.end_ms)).verdict is TraceVerdict.UNKNOWN


def test_a_batch_of_the_api_holds_no_place_of_a_file() -> None:
    assert not PLACE.matches_range(audit_record(kind="batch")) and PLACE.matches_range(
        audit_record()
    )


def test_what_waits_on_its_host_is_told_as_its_host_says() -> None:
    host = HostTrace("spooled", "/log", "`hourmark tail status`", 2)
    found = story(Servers(), PLACE, host)
    assert (found.verdict, found.next_step) == (TraceVerdict.ON_HOST, "`hourmark tail status`")
    assert "2 losses were recorded" in step(found, "host").what
    nowhere = summarize_trace(
        TraceResults(is_mirrored=True), dataclasses.replace(host, stage="no_such_line")
    )
    assert (nowhere.verdict, nowhere.next_step) == (
        TraceVerdict.NOT_FOUND,
        "`hourmark tail status`",
    )


def test_an_acknowledgement_that_the_host_missed_counts(servers: Servers) -> None:
    assert (
        story(servers, PLACE, HostTrace("spooled", "/log", "", 0)).verdict is TraceVerdict.IN_BUCKET
    )


def test_a_record_of_a_topic_made_anew_is_not_taken_for_the_staged_one(servers: Servers) -> None:
    assert servers.central is not None
    servers.central = dataclasses.replace(servers.central, event_id=type(EVENT)(bytes(16)))
    assert step(story(servers), "mirrored").state is StepState.NO


@pytest.mark.parametrize("topic", ["hourmark.audit", "other.events.click", "logs"])
def test_other_topics_are_wrong_use(servers: Servers, topic: str) -> None:
    with pytest.raises(UsageError, match=r"not a topic of events.*edge\.events\.TYPE"):
        walked(servers, KafkaRecordQuery(topic, 0, 1))


def test_an_offset_that_holds_nothing_is_not_found(servers: Servers) -> None:
    assert story(servers, KafkaRecordQuery("events.click", 0, 8)).verdict is TraceVerdict.NOT_FOUND


def test_questions_are_read() -> None:
    assert parse_query(str(EVENT), TYPE, None) == AN_EVENT
    assert parse_query("events.end-song:3:12", None, None) == KafkaRecordQuery(
        "events.end-song", 3, 12
    )
    assert parse_query("web-1:/var/log/a:b.log:98", None, 2) == FilePositionQuery(
        "web-1", "/var/log/a:b.log", 98, 2
    )
    assert parse_query(f"{'a' * 32}:{'b' * 32}:0", None, None) == FilePositionQuery(
        "a" * 32, "b" * 32, 0
    )
    for wrong in ("", "/var/log/app.log:12", "web-1:/log", "events.click:1"):
        with pytest.raises(UsageError, match="cannot be traced"):
            parse_query(wrong, None, None)
    with pytest.raises(UsageError, match="--type"):
        parse_query(str(EVENT), None, None)


def test_what_the_hosts_tool_printed_is_read() -> None:
    printed = {
        "stage": "acknowledged",
        "path": "/log",
        "offset": 5,
        "host_id": "a" * 32,
        "source": "app",
        "file_id": "b" * 32,
        "generation": 1,
        "losses": 0,
        "next": "do",
    }
    says = HostTrace("acknowledged", "/log", "do", 0)
    assert parse_host_trace(json.dumps(printed)) == (
        FilePositionQuery("a" * 32, "b" * 32, 5, 1),
        says,
    )
    assert parse_host_trace(json.dumps(printed | {"file_id": None, "generation": None})) == (
        None,
        says,
    )
    for wrong in ("", "[]", "{}", "acknowledged: …"):
        with pytest.raises(UsageError, match="--from"):
            parse_host_trace(wrong)
