"""A task's staging: every row in one group of one file, sorted, sums that agree; nothing where
there is nothing.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.records import Row, audit_record, host_report, kafka_table, stage_plan

from hourmark.avro.datum_check import REASONS, DatumVerdict, compile_schema
from hourmark.avro.framing import event_schema, framing_header
from hourmark.records.audit import Promise
from hourmark.records.event_id import LineIds
from hourmark.records.host_reports import HostReport, SourceReport
from hourmark.records.ranges import RangeId
from hourmark.records.record_key import RecordKey
from hourmark_etl.errors import BadRecord
from hourmark_etl.ledger.hosts.reporters import decode_report
from hourmark_etl.model import FIRST_SITE, RANGE_WEIGHT, OffsetSpan
from hourmark_etl.staging.files import EVENT_SCHEMA
from hourmark_etl.staging.pieces import StagedChunk, StagePlan
from hourmark_etl.staging.read import RecordChunk
from hourmark_etl.staging.stage import find_first_valid_offset, stage_chunks, stage_table
from hourmark_etl.storage import LocalDisk

IDS = LineIds("a" * 32, "b" * 32, 0)
RANGE = RangeId(b"12345678")
TYPES = {"edge.events.click": "click", "edge.events.view": "view"}
AUDIT, HOSTS = "edge.hourmark.audit", "edge.hourmark.hosts"
TIME_MS = 1_800_000_000_000
CLICK, VIEW = TYPES


def plan(**changes: Any) -> StagePlan:
    return stage_plan(
        types=TYPES,
        audits={AUDIT: FIRST_SITE},
        hosts={HOSTS},
        **changes,
    )


def key_of(time_ms: int, offset: int) -> bytes:
    return RecordKey(IDS.make(time_ms, offset, b"line"), RANGE).encode()


def event(topic: str, time_ms: int, offset: int, schema_id: int = 1) -> Row:
    return (
        key_of(time_ms, offset),
        framing_header(schema_id) + b"datum%d" % offset,
        topic,
        0,
        offset,
    )


def staged(rows: list[Row] | pa.Table, folder: Path, **changes: Any) -> StagedChunk:
    table = rows if isinstance(rows, pa.Table) else kafka_table(rows)
    piece = stage_table(table, spans_of(table), plan(**changes), LocalDisk(folder))
    assert pickle.loads(pickle.dumps(piece)) == piece
    return piece


def spans_of(table: pa.Table) -> list[OffsetSpan]:
    """Each topic-partition of the table as one span."""
    topics = [str(t) for t in table.column("topic").to_pylist()]
    places = [
        *zip(
            topics,
            table.column("partition").to_pylist(),
            table.column("offset").to_pylist(),
            strict=True,
        )
    ]
    return [
        OffsetSpan(
            topic=topic,
            topic_id="id",
            partition=partition,
            start=min(o for *p, o in places if p == [topic, partition]),
            end=1 + max(o for *p, o in places if p == [topic, partition]),
        )
        for topic, partition in sorted({(t, p) for t, p, _ in places})
    ]


def test_a_task_without_rows_stages_nothing(tmp_path: Path) -> None:
    assert staged([], tmp_path) == StagedChunk()
    assert not list(tmp_path.rglob("*.parquet"))


events = st.lists(
    st.tuples(
        st.sampled_from(sorted(TYPES)),
        st.integers(0, 10).map(lambda n: TIME_MS + n * 1_700_000),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=40,
)


@given(events, st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_every_row_is_in_one_group_whose_count_sum_and_schemas_agree(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[str, int, int]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("staged")
    rows = [
        event(topic, time_ms, offset, schema)
        for offset, (topic, time_ms, schema) in enumerate(drawn)
    ]
    out = staged(pa.concat_tables([kafka_table(rows[:cut]), kafka_table(rows[cut:])]), folder)
    (file,) = out.files
    table = pq.read_table(folder / file.path)
    assert table.schema.equals(EVENT_SCHEMA) and file.rows == table.num_rows == len(rows)
    places = dict(
        zip(table.column("offset").to_pylist(), table.drop_columns("type").to_pylist(), strict=True)
    )
    for key, value, _, partition, offset in rows:
        stood = places[offset]
        assert (stood["event_id"] + stood["range_id"], stood["datum"], stood["partition"]) == (
            key,
            value[5:],
            partition,
        )
        assert stood["schema_id"] == int.from_bytes(value[1:5], "big")
    keys = list(
        zip(table.column("type").to_pylist(), table.column("hour").to_pylist(), strict=True)
    )
    assert keys == sorted(keys)
    assert {(g.event_type, g.hour_s): g.rows for g in out.groups} == dict(Counter(keys))
    ids = table.column("event_id").to_pylist()
    for g in out.groups:
        assert set(keys[g.first_row : g.first_row + g.rows]) == {(g.event_type, g.hour_s)}
        group_ids = ids[g.first_row : g.first_row + g.rows]
        assert group_ids == sorted(group_ids) and [g.first_id, g.last_id] == [
            group_ids[0],
            group_ids[-1],
        ]
        own = [r for r in rows if TYPES[r[2]] == g.event_type and hour_of(r) == g.hour_s]
        assert g.low64_sum == sum(digest_of(key) for key, *_ in own) % 2**64
        assert g.datum_bytes == sum(len(value) - 5 for _, value, *_ in own)
        assert g.schema_ids == tuple(
            sorted({int.from_bytes(value[1:5], "big") for _, value, *_ in own})
        )


def digest_of(key: bytes) -> int:
    return int.from_bytes(key[8:16], "big") + RANGE_WEIGHT * int.from_bytes(key[16:], "big")


def hour_of(row: Row) -> int:
    return int.from_bytes(row[0][:6], "big") // 1000 // 3600 * 3600


def test_topics_may_come_as_a_dictionary_in_chunks(tmp_path: Path) -> None:
    plain = pa.concat_tables([kafka_table([event(t, TIME_MS, n)]) for n, t in enumerate(TYPES)])
    coded = plain.set_column(
        2, "topic", pa.chunked_array([c.dictionary_encode() for c in plain.column("topic").chunks])
    )
    out = staged(coded, tmp_path)
    assert [g.event_type for g in out.groups] == ["click", "view"]


def test_promises_are_staged_by_type_and_hour_and_reports_handed_on(tmp_path: Path) -> None:
    record = audit_record(
        range_id=RANGE, promised=(Promise("click", 3600, 2, 2**64 - 1), Promise("view", 7200, 1, 5))
    )
    report = host_report()
    rows: list[Row] = [
        (b"k", framing_header(9) + record.encode(), AUDIT, 0, 7),
        (b"k", framing_header(9) + report.encode(), HOSTS, 0, 3),
    ]
    out = staged(rows, tmp_path)
    (file,) = out.files
    assert (file.kind, file.rows) == ("audit", 2)
    ranged = RANGE_WEIGHT * int.from_bytes(RANGE, "big")
    groups = [
        (g.path, g.event_type, g.hour_s, g.rows, g.first_offset, g.last_offset)
        for g in out.audit_groups
    ]
    assert groups == [(file.path, "click", 3600, 1, 7, 7), (file.path, "view", 7200, 1, 7, 7)]
    assert [(g.promised, g.low64_sum) for g in out.audit_groups] == [
        (2, (2**64 - 1 + 2 * ranged) % 2**64),
        (1, (5 + ranged) % 2**64),
    ]
    assert pq.read_table(tmp_path / file.path).column("sum").to_pylist() == [-1, 5]
    assert [HostReport.decode(r.datum) for r in out.reports] == [report]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"short", framing_header(1), "the key does not have 24 bytes"),
        (None, framing_header(1), "the key does not have 24 bytes"),
        (None, None, "the key does not have 24 bytes"),
        (bytes(24), None, "the value is null, or shorter than 5 bytes"),
        (bytes(24), b"\x00\x00", "the value is null, or shorter than 5 bytes"),
        (bytes(24), b"\x01\x00\x00\x00\x01x", "the value does not begin with 0x00 and a schema id"),
        (bytes(24), b"\x00\xff\xff\xff\xff", "the value does not begin with 0x00 and a schema id"),
    ],
)
def test_a_record_that_nobody_may_write_is_set_aside_alone(
    tmp_path: Path, key: bytes, value: bytes, reason: str
) -> None:
    rows: list[Row] = [
        event(CLICK, TIME_MS, 0),
        (key, value, CLICK, 3, 77),
        event(CLICK, TIME_MS, 1),
        (key, value, CLICK, 3, 79),
    ]
    piece = staged(rows, tmp_path)
    (found,) = piece.set_aside
    assert (found.topic, found.partition, found.event_type, found.offsets, found.reason) == (
        CLICK,
        3,
        "click",
        (77, 79),
        reason,
    )
    assert sum(g.rows for g in piece.groups) == 2


def test_only_records_that_can_be_staged_make_a_file(tmp_path: Path) -> None:
    piece = staged([(b"short", framing_header(1), CLICK, 3, 77)], tmp_path)
    assert piece.files == () and len(piece.set_aside) == 1
    assert not list(tmp_path.rglob("*.parquet"))


NONE: Final = [
    b"no",
    framing_header(9),
    framing_header(9) + b"\x10\x01",
    framing_header(9) + b"\xff" * 40,
]


@pytest.mark.parametrize("topic", [AUDIT, HOSTS])
@pytest.mark.parametrize("value", NONE, ids=["unframed", "empty", "cut off", "other bytes"])
def test_a_record_that_nobody_may_write_on_a_control_topic_stops_with_its_place(
    tmp_path: Path, value: bytes, topic: str
) -> None:
    rows: list[Row] = [event(CLICK, TIME_MS, 0), (b"k", value, topic, 0, 5)]
    with pytest.raises(BadRecord, match=rf"topic {topic} partition 0 offset 5: "):
        staged(rows, tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_control_partition_is_staged_up_to_its_first_bad_record_and_everything_else_is_staged_whole(
    tmp_path: Path,
) -> None:
    good = framing_header(9) + audit_record(promised=(Promise("click", 3600, 1, 5),)).encode()
    impossible = (
        framing_header(9) + audit_record(promised=(Promise("click", 3600 + 7, 1, 5),)).encode()
    )
    rows: list[Row] = [
        *((RANGE, good, AUDIT, 0, n) for n in range(3)),
        (RANGE, impossible, AUDIT, 0, 3),
        (b"k", b"no", AUDIT, 0, 5),
        *((RANGE, good, AUDIT, 1, n) for n in range(9)),
        (b"k", b"no", HOSTS, 0, 0),
        event(CLICK, TIME_MS, 7),
    ]
    table = kafka_table(rows)
    staged_plan = plan()
    pieces = [
        RecordChunk(t, tuple(spans_of(t)))
        for t in (table, kafka_table([(RANGE, good, AUDIT, 0, 6)]))
    ]
    whole, waits = stage_chunks(pieces, staged_plan, LocalDisk(tmp_path), [])
    assert {(s.topic, s.partition): s.end for s in whole.spans} == {
        (AUDIT, 0): 3,
        (AUDIT, 1): 9,
        (CLICK, 0): 8,
    }
    assert (
        sum(g.rows for g in whole.piece.audit_groups) == 12
        and sum(g.rows for g in whole.piece.groups) == 1
    )
    assert waits.spans == () and {(u.topic, u.partition, u.offset) for u in waits.unread} == {
        (AUDIT, 0, 3),
        (HOSTS, 0, 0),
    }


def test_the_first_valid_record_behind_bad_ones_is_found(tmp_path: Path) -> None:
    good = framing_header(9) + audit_record(promised=(Promise("click", 3600, 1, 5),)).encode()
    bad: list[Row] = [(b"k", b"no", AUDIT, 0, 4), (b"k", b"", AUDIT, 0, 5)]
    assert find_first_valid_offset(kafka_table([*bad, (RANGE, good, AUDIT, 0, 8)]), plan()) == 8
    assert find_first_valid_offset(kafka_table(bad), plan()) is None


@pytest.mark.parametrize(
    "promised",
    [
        Promise("click", 3600 + 7, 1, 5),
        Promise("click", -3600, 1, 5),
        Promise("click", 10**12 * 3600, 1, 5),
        Promise("click", 3600, 2**63 - 1, 5),
        Promise("cl\0ck", 3600, 1, 5),
    ],
    ids=["no hour", "before 1970", "after 9999", "too many", "no type"],
)
def test_a_promise_of_what_cannot_be_stops_with_its_place(
    tmp_path: Path, promised: Promise
) -> None:
    """Further on nobody could say where it came from."""
    record = (
        framing_header(9) + audit_record(promised=(Promise("click", 3600, 1, 5), promised)).encode()
    )
    with pytest.raises(
        BadRecord,
        match=rf"topic {AUDIT} partition 0 offset 5: no range has .* events of 'cl.*ck', hour",
    ):
        staged([(RANGE, record, AUDIT, 0, 5)], tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))


def test_texts_of_control_records_are_such_as_every_ledger_takes(tmp_path: Path) -> None:
    """PostgreSQL takes no NUL, and the offset could never be passed."""
    record = audit_record(host_name="a\0b", path="/x\0", promised=(Promise("click", 3600, 1, 5),))
    (file,) = staged([(RANGE, framing_header(9) + record.encode(), AUDIT, 0, 5)], tmp_path).files
    (origin,) = pq.read_table(tmp_path / file.path).column("origin").to_pylist()
    assert origin == "range of a\ufffdb: /x\ufffd [0, 10) generation 0"
    source = SourceReport("s\0", None, 0, 0)
    (told,) = decode_report(
        host_report(1, host_name="w\0", incarnation="i\0", sources=(source,)), 1
    )
    assert (told.source, told.host_name, told.incarnation) == ("s\ufffd", "w\ufffd", "i\ufffd")


def test_a_record_under_another_types_id_is_set_aside(tmp_path: Path) -> None:
    """The rules fixed what ids stand for; an id that they do not know (yet) is asked after when a
    bucket is written.
    """
    known = {1: "click", 2: "view"}
    rows = [
        event(VIEW, TIME_MS, 0, 2),
        event(CLICK, TIME_MS, 1, 1),
        event(VIEW, TIME_MS, 2, 3),
        event(VIEW, TIME_MS, 3, 1),
    ]
    assert staged(rows[:3], tmp_path, schema_types=known).set_aside == ()
    (found,) = staged(rows, tmp_path, schema_types=known).set_aside
    assert (found.topic, found.offsets, found.reason) == (
        VIEW,
        (3,),
        "its schema id 1 belongs to the type click",
    )


SCHEMA = event_schema("click", [{"name": "number", "type": "long"}])
OTHER = event_schema("view", [{"name": "text", "type": "string"}])
PROGRAMS = {1: compile_schema(SCHEMA), 2: compile_schema(OTHER)}


def datum(schema: Mapping[str, Any], event_id: bytes, **fields: Any) -> bytes:
    buffer = io.BytesIO()
    row = {
        "event_id": event_id,
        "event_time": TIME_MS,
        "host": "h",
        "source": "s",
        "file": None,
        "position": 0,
        **fields,
    }
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(dict(schema)), row)
    return buffer.getvalue()


def test_datums_are_checked_by_their_own_schema_and_against_their_keys(tmp_path: Path) -> None:
    """Types and schema ids in turn, so that a run of one schema is no run of the piece."""
    rows: list[Row] = []
    for n in range(6):
        kinds: list[tuple[str, int, Mapping[str, Any], dict[str, Any]]]
        kinds = [(CLICK, 1, SCHEMA, {"number": n}), (VIEW, 2, OTHER, {"text": "t" * n})]
        topic, schema_id, schema, more = kinds[n % 2]
        key = key_of(TIME_MS, n)
        rows.append((key, framing_header(schema_id) + datum(schema, key[:16], **more), topic, 0, n))
    good = staged(rows, tmp_path, programs=PROGRAMS)
    assert good.set_aside == () and sum(g.rows for g in good.groups) == 6
    rows[2] = (rows[2][0], rows[2][1][:-1], CLICK, 0, 2)  # cut off
    rows[3] = (rows[1][0], rows[3][1], VIEW, 0, 3)  # under the id of another event
    rows[5] = (rows[5][0], rows[5][1] + b"\0", VIEW, 0, 5)
    piece = staged(rows, tmp_path, programs=PROGRAMS)
    assert {(of.event_type, of.offsets, of.reason) for of in piece.set_aside} == {
        ("click", (2,), REASONS[DatumVerdict.TOO_SHORT]),
        ("view", (3,), REASONS[DatumVerdict.OTHER_ID]),
        ("view", (5,), REASONS[DatumVerdict.TRAILING]),
    }
    assert sum(g.rows for g in piece.groups) == 3
