"""Audit records, host reports, headers, rules revisions, manifests: what is written comes back, and
wrong input is refused.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import audit_record, byte_range

from hourmark.avro.datum import Datum
from hourmark.avro.framing import digest, fingerprint, framing_header, unframe
from hourmark.config.groups import ParsingSettings
from hourmark.records import audit
from hourmark.records.audit import AuditRecord, Promise, promises, sum_low64
from hourmark.records.event_id import EventId
from hourmark.records.host_reports import SCHEMA, SCHEMA_BEFORE_UNKNOWN, HostReport, SourceReport
from hourmark.records.manifest import Manifest
from hourmark.records.ranges import Part, RangeId, decode_range_fields, encode_range_fields
from hourmark.records.wire import (
    RANGE_HEADERS,
    parse_range_headers,
    range_headers,
    report_from_json,
    report_to_json,
)
from hourmark.rules.event_types import DEAD_LETTERS, EventType, LineRule, Source
from hourmark.rules.revision import Rules, RulesBook, TypeVersion
from hourmark_declare.avro_evolution import find_incompatibility

TEXT = st.text(max_size=30)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True)
MILLIS = st.integers(0, 4_000_000_000_000)
COUNTS = st.integers(0, (1 << 63) - 1)
REPORTED = st.integers(
    0, (1 << 53) - 1
)  # a service refuses larger counts: no host has read so many bytes
IDS = st.binary(min_size=16, max_size=16).map(EventId)
HEX = st.text("0123456789abcdef", min_size=32, max_size=32)


HASHES = st.integers(0, (1 << 64) - 1)


@given(
    st.lists(st.tuples(NAMES, st.integers(0, 3).map(lambda h: h * 3600), IDS, HASHES), max_size=30)
)
def test_promises_count_distinct_ids_by_type_and_hour(
    events: list[tuple[str, int, EventId, int]],
) -> None:
    made = promises(events + events[: len(events) // 2])
    expected: dict[tuple[str, int], set[EventId]] = {}
    for event_type, hour, event_id, _ in events:
        expected.setdefault((event_type, hour), set()).add(event_id)
    assert {(p.event_type, p.hour_start_s): (p.count, p.sum) for p in made} == {
        key: (len(ids), sum(i.low64 for i in ids) % 2**64) for key, ids in expected.items()
    }
    assert list(made) == sorted(made)


@given(
    st.binary(min_size=8, max_size=8),
    TEXT,
    TEXT,
    COUNTS,
    MILLIS,
    st.lists(
        st.builds(
            Promise,
            NAMES,
            st.integers(0, 1 << 40),
            st.integers(1, 1 << 40),
            st.integers(0, 2**64 - 1),
        ),
        max_size=5,
    ),
    st.none() | COUNTS,
)
def test_audit_records_come_back(
    range_id: bytes,
    name: str,
    path: str,
    at: int,
    ms: int,
    promised: list[Promise],
    blanks: int | None,
) -> None:
    record = audit_record(
        range_id=RangeId(range_id),
        host_name=name,
        generation=3,
        start=at,
        end=at,
        observed_at_ms=ms,
        path=path,
        promised=tuple(promised),
        blanks=blanks,
    )
    assert AuditRecord.decode(record.encode()) == record
    before = Datum(audit.SCHEMA_BEFORE_BLANKS).decode(
        record.encode()
    )  # as version 0.2.0 reads it, whichever wrote it
    assert (before["range_id"], before["lines"], len(before["promised"])) == (
        range_id,
        record.lines,
        len(promised),
    )


def test_the_schemas_of_audit_records_read_each_other() -> None:
    forms = (audit.SCHEMA, audit.SCHEMA_BEFORE_CHECKSUMS, audit.SCHEMA_BEFORE_BLANKS)
    for written, reader in itertools.permutations(forms, 2):
        assert find_incompatibility(written, reader) is None
    assert audit.SCHEMA["fields"][:-2] == [
        {**field, "doc": audit.SCHEMA["fields"][at]["doc"]} if field["name"] == "lines" else field
        for at, field in enumerate(audit.SCHEMA_BEFORE_BLANKS["fields"])
    ], "a reader of then passes over what follows"


@given(st.lists(IDS, max_size=10))
def test_sums_of_tails_are_modulo_two_to_the_64(ids: list[EventId]) -> None:
    assert 0 <= sum_low64(ids) < 2**64
    assert sum_low64([EventId(b"\xff" * 16), EventId(bytes(15) + b"\x02")]) == 1


reports = st.builds(
    HostReport,
    host_id=HEX,
    host_name=TEXT,
    kind=st.sampled_from(["tailer", "service"]),
    incarnation=TEXT,
    sequence=REPORTED,
    received_at_ms=MILLIS,
    goodbye=st.booleans(),
    sources=st.lists(
        st.builds(
            SourceReport, NAMES, st.none() | MILLIS, REPORTED, REPORTED, REPORTED, st.booleans()
        ),
        max_size=4,
        unique_by=lambda s: s.source,
    ).map(tuple),
)


@given(reports)
def test_host_reports_come_back_in_avro_and_json(report: HostReport) -> None:
    assert HostReport.decode(report.encode()) == report
    assert report_from_json(report_to_json(report)) == report


@given(reports)
def test_versions_before_unknown_losses_read_reports_and_write_readable_ones(
    report: HostReport,
) -> None:
    """A reader of before takes from a datum what it knows; a datum of before says of later fields
    what there was: nothing.
    """
    silent = tuple(
        dataclasses.replace(s, unknown_losses=0, unrepeatable=False) for s in report.sources
    )
    before = dataclasses.replace(report, sources=silent)
    assert (
        Datum(SCHEMA_BEFORE_UNKNOWN).decode(report.encode())["sources"]
        == Datum(SCHEMA).decode(report.encode())["sources"]
    )
    assert HostReport.decode(report.encode(with_unknown_losses=False)) == before
    assert report_from_json(report_to_json(report, with_unknown_losses=False)) == before
    assert not any(
        later in report_to_json(before) for later in (b"unknown_losses", b"unrepeatable")
    )


@given(reports, MILLIS)
def test_a_service_never_stores_a_caught_up_time_past_its_own_clock(
    report: HostReport, clock_ms: int
) -> None:
    stored = report.stamped(clock_ms)
    assert stored.received_at_ms == clock_ms
    assert all(s.caught_up_at_ms is None or s.caught_up_at_ms <= clock_ms for s in stored.sources)


def _body(*sources: dict[str, Any], **changes: Any) -> bytes:
    usual = {
        "host_id": "a",
        "host_name": "h",
        "kind": "tailer",
        "incarnation": "i",
        "sequence": 0,
        "received_at_ms": 0,
        "goodbye": False,
    }
    said = [
        {"source": "s", "caught_up_at_ms": 1, "pending_bytes": 0, "lost_bytes": 0} | source
        for source in sources
    ]
    return json.dumps({**usual, "sources": said, **changes}).encode()


def test_a_report_of_the_right_form_is_taken() -> None:
    assert report_from_json(_body({})).sources == (SourceReport("s", 1, 0, 0),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"sources": 3}',
        b"null",
        _body({"caught_up_at_ms": -1}),
        _body(host_id=7),
        _body({}, {}),
    ],
)
def test_a_report_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # any message; the service answers 400 with it
        report_from_json(body)


@given(
    HEX,
    HEX,
    st.integers(0, 1 << 40),
    st.integers(1, 1 << 20),
    st.text(min_size=1, max_size=40),
    st.sampled_from(Part),
)
def test_range_headers_come_back(
    host: str, file: str, start: int, size: int, path: str, part: Part
) -> None:
    made = byte_range(
        host_id=host,
        file_id=file,
        generation=1,
        start=start,
        end=start + size,
        path=path,
        host_name="wëb 1",
        part=part,
    )
    headers = range_headers(made)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert parse_range_headers(headers) == made


def test_a_path_that_is_no_utf8_survives_the_headers() -> None:
    made = byte_range(path=b"/log/\xff".decode(errors="surrogateescape"))
    assert parse_range_headers(range_headers(made)) == made


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Hourmark-Offset", "-1"),
        ("Hourmark-Offset", "1e3"),
        ("Hourmark-Offset", "9" * 30),
        ("Hourmark-Offset", "٣"),
        ("Hourmark-Host", "x"),
        ("Hourmark-Part", "some"),
        ("Hourmark-Observed-At", ""),
    ],
)
def test_a_wrong_header_is_named(header: str, value: str) -> None:
    headers = range_headers(byte_range())
    with pytest.raises(ValueError, match=r"Hourmark|host_id"):
        parse_range_headers({**headers, header: value})
    del headers["Hourmark-Offset"]
    with pytest.raises(ValueError, match="Hourmark-Offset is missing"):
        parse_range_headers(headers)


PARTS_OF_0_2_0 = ("lines", "chunk", "last-chunk")


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
FIELDS = st.dictionaries(NAMES, st.text(max_size=20), min_size=1, max_size=5).map(
    encode_range_fields
)


@given(st.text(min_size=1, max_size=250), st.sampled_from(Part), st.one_of(st.just(""), FIELDS))
def test_extras_travel_and_a_service_before_them_refuses_the_range(
    pattern: str, part: Part, fields: str
) -> None:
    made = byte_range(record_start=pattern, part=part, fields=fields)
    headers = range_headers(made)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert parse_range_headers(headers) == made
    assert headers["Hourmark-Part"] not in PARTS_OF_0_2_0, "all that it takes: it would read lines"
    assert made.range_id(b"xx") != byte_range(part=part).range_id(b"xx")


def test_a_range_without_extras_is_what_it_was() -> None:
    assert set(range_headers(byte_range())) == {*RANGE_HEADERS, "Hourmark-Part"}
    assert range_headers(byte_range())["Hourmark-Part"] in PARTS_OF_0_2_0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"Hourmark-Part": "lines; needs=record-folding"}, "record-folding.*upgrade"),
        ({"Hourmark-Part": "lines; needs=record_start,x"}, "'x'.*upgrade"),
        ({"Hourmark-Part": "lines; needs="}, "upgrade"),
        (
            {"Hourmark-Part": "lines"},
            "Hourmark-Record-Start is allowed if and only if Hourmark-Part lists record_start",
        ),
        ({"Hourmark-Record-Start": ""}, "must not be empty"),
        ({"Hourmark-Record-Start": "é"}, "percent-encoded"),
        ({"Hourmark-Record-Start": "x" * 1001}, "1000 bytes"),
        ({"Hourmark-Folding": "1"}, "does not support the header Hourmark-Folding; upgrade"),
    ],
)
def test_a_range_that_is_not_understood_is_refused_and_never_misread(
    changes: dict[str, str], said: str
) -> None:
    headers = range_headers(byte_range(record_start="^S"))
    with pytest.raises(ValueError, match=said):
        parse_range_headers(headers | changes)


@given(FIELDS)
def test_fields_are_written_in_one_way_alone(written: str) -> None:
    read = decode_range_fields(written)
    assert encode_range_fields(dict(reversed(read.items()))) == written
    for other in (
        written + " ",
        " " + written,
        written.replace(":", ": ", 1),
        written[:-1] + ",}",
        f"[{written}]",
    ):
        with pytest.raises(ValueError, match=r".+"):
            decode_range_fields(other)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({f"n{n}": "" for n in range(33)}, "33 fields; the maximum is 32"),
        ({"a": "x" * 4000}, "the maximum is 4000"),
        ({"a": "ä" * 2000}, "the maximum is 4000"),
        ({"1a": ""}, "not beginning with a digit"),
        ({"": ""}, "not beginning with a digit"),
        ({"a-b": ""}, "letters, digits and _"),
        ({"a": "\udc80"}, "surrogates"),
    ],
)
def test_fields_are_bounded(fields: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        encode_range_fields(fields)
    with pytest.raises(ValueError, match=r".+"):
        byte_range(
            fields=json.dumps(fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        )


@pytest.mark.parametrize(
    "written",
    ['{"a":1}', "[]", '""', "null", "{", '{"a":"b","a":"b"}', "[" * 3000, '{"b":"","a":""}', "{}"],
)
def test_what_are_no_fields_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        byte_range(fields=written)


def test_a_containers_log_travels_and_no_other_format_does() -> None:
    made = byte_range(format="cri", fields=encode_range_fields({"pod": "web-0"}))
    assert parse_range_headers(range_headers(made)) == made
    assert range_headers(made)["Hourmark-Part"] == "lines; needs=fields,format"
    for wrong in ({"format": "docker"}, {"format": "cri", "record_start": "^S"}):
        with pytest.raises(ValueError, match="format must be cri"):
            byte_range(**wrong)


def test_what_is_needed_must_be_there() -> None:
    headers = range_headers(byte_range(record_start="^S"))
    del headers["Hourmark-Record-Start"]
    with pytest.raises(ValueError, match="Hourmark-Record-Start is missing"):
        parse_range_headers(headers)


def _type(name: str = "click", **changes: Any) -> EventType:
    return EventType(**{"name": name, "fields": [{"name": "n", "type": "long"}], **changes})


def _rules(sequence: int = 1, **types: EventType) -> Rules:
    versions = {
        t.name: TypeVersion(t, at + 1) for at, t in enumerate([DEAD_LETTERS, *types.values()])
    }
    return Rules(
        sequence=sequence,
        types=versions,
        sources={"app": Source(name="app", types=["click"])},
        parsing=ParsingSettings(),
    )


def test_a_rules_book_has_every_revision_whole_and_the_latest() -> None:
    one, two = _rules(1, click=_type()), _rules(2, click=_type(doc="changed"))
    book = RulesBook([*one.records(), *two.records()])
    assert (book.get(one.id), book.get(two.id), book.latest) == (one, two, two)
    assert book.get("9-none") is None
    assert not one.same_content(two)
    assert one.same_content(dataclasses.replace(one, sequence=7))


def test_publishing_twice_changes_nothing() -> None:
    one = _rules(1, click=_type())
    assert RulesBook(one.records() * 2).latest == one
    assert len(dict(one.records())) == len(one.records()), (
        "keys are distinct, so compaction keeps all of them"
    )


def test_revisions_of_another_version_keep_their_names() -> None:
    """A software that knows more settings, or fewer, must not rename what ranges may name years
    later.
    """
    records = dict(_rules(1, click=_type()).records())
    older = {}
    for key, value in records.items():
        if key.startswith("type/click/"):
            text = value.replace('"partitions":1,', "")  # as if that setting had not existed
            older[f"type/click/{digest(text)}"] = text
            click_digests = (key.rpartition("/")[2], digest(text))
        elif key.startswith("type/"):
            older[key] = value
    rules_text = next(v for k, v in records.items() if k.startswith("rules/")).replace(
        *click_digests
    )
    key = f"rules/1-{digest(rules_text)}"
    book = RulesBook([*older.items(), (key, rules_text)])
    assert book.latest is not None
    assert book.latest.id == key.removeprefix("rules/")
    assert dict(book.latest.records()) == {**older, key: rules_text}


def test_a_revision_waits_for_its_types_in_whatever_order_they_come() -> None:
    one = _rules(1, click=_type())
    for records in itertools.permutations(one.records()):
        book = RulesBook()
        for at, (key, value) in enumerate(records, 1):
            assert book.latest is None
            book.add(key, value)
            taken = dict(records[:at])
            waits = f"rules/{one.id}" in taken and at < len(records)
            assert book.missing == (
                {one.id: sorted({t.key for t in one.types.values()} - taken.keys())}
                if waits
                else {}
            )
        assert book.latest == one


def test_every_revision_outlives_compaction() -> None:
    """The last record of each key stays, at its own offset."""
    history = [
        _rules(1, click=_type()),
        _rules(2, click=_type(), view=_type("view")),
        _rules(3, click=_type(doc="changed")),
    ]
    log = [record for rules in history for record in rules.records()]
    last = {key: at for at, (key, _) in enumerate(log)}
    assert len(last) < len(log)
    book = RulesBook(record for at, record in enumerate(log) if last[record[0]] == at)
    assert book.revisions == history


def test_a_schema_id_with_two_meanings_is_named() -> None:
    one, two = _rules(1, click=_type()), _rules(2, view=_type("view"))
    book = RulesBook([*two.records(), *one.records()])
    everything = {one.id, two.id}
    book.check_schema_ids(one, everything)
    book.check_schema_ids(two, {two.id})
    with pytest.raises(ValueError, match=r"schema id 2 identifies click .*, and now view"):
        book.check_schema_ids(two, everything)
    with pytest.raises(ValueError, match="schema id 2 identifies"):
        book.schemas()


def test_a_revision_that_was_altered_is_refused() -> None:
    records = _rules(1, click=_type()).records()
    key, value = records[-1]
    with pytest.raises(ValueError, match="not usable"):
        RulesBook([*records[:-1], (key, value.replace('"sequence":1', '"sequence":2'))])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"name": "Click"}, "name"),
        ({"fields": [{"name": "event_id", "type": "long"}]}, "envelope"),
        ({"fields": [{"name": "n", "type": "nonsense"}]}, "Avro"),
        ({"fields": [{"name": "n", "type": "long"}] * 2}, "twice"),
        ({"line": LineRule(payload="text", field="m")}, "not one of the fields"),
        ({"fields": [{"name": "0", "type": "long"}]}, "field name"),
    ],
)
def test_a_wrong_type_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        _type(**changes)


@given(st.integers(0, 2**31 - 1), st.binary(max_size=20))
def test_framing_comes_back(schema_id: int, datum: bytes) -> None:
    assert unframe(framing_header(schema_id) + datum) == (schema_id, datum)


@pytest.mark.parametrize("value", [b"", b"\x00\x00", b"\x01\x00\x00\x00\x01"])
def test_values_without_framing_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="framing"):
        unframe(value)


def test_a_schemas_fingerprint_changes_with_it() -> None:
    assert fingerprint(_type().schema()) == fingerprint(_type().schema())
    assert fingerprint(_type().schema()) != fingerprint(_type(doc="other").schema())


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 1}'])
def test_what_is_no_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a manifest"):
        Manifest.decode(content)
