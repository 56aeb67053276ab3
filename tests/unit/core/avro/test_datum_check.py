"""Datum checks: native code, Python and fastavro agree on what is valid; hostile counts and depths
end quickly.
"""

from __future__ import annotations

import array
import io
import itertools
import struct
from typing import Any, Final

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hourmark_native as native
from hourmark.avro.datum_check import (
    NO_PROGRAM,
    REASONS,
    DatumVerdict,
    check_datums,
    check_value,
    compile_schema,
    holds_event_id,
)
from hourmark.avro.framing import encode_long

ID: Final = bytes(range(16))
FRAME: Final = b"\x00\x00\x00\x00\x07"
ENVELOPE: Final = {"name": "event_id", "type": {"type": "fixed", "name": "Id", "size": 16}}
needs_module = pytest.mark.skipif(native.MODULE is None, reason="the compiled module is not there")

# Pairs (Avro type, strategy of values); no item of an array or map has zero bytes: fastavro would
# count to 2^62.
_SCALARS: Final[list[tuple[Any, st.SearchStrategy[Any]]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    ("double", st.floats(allow_nan=False)),
    ("float", st.floats(allow_nan=False, width=32)),
    ("bytes", st.binary(max_size=9)),
    ("string", st.text(max_size=9)),
]


@st.composite
def _types(draw: st.DrawFn, depth: int = 3, name: str = "T") -> tuple[Any, st.SearchStrategy[Any]]:
    kind = draw(
        st.sampled_from(
            ["scalar", "enum", "fixed", "array", "map", "record", "union"] if depth else ["scalar"]
        )
    )
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}, st.sampled_from(
            ["A", "B", "C"]
        )
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    if kind == "array":
        items, values = draw(_types(depth - 1, f"{name}i"))
        return {"type": "array", "items": items}, st.lists(values, max_size=3)
    if kind == "map":
        items, values = draw(_types(depth - 1, f"{name}i"))
        return {"type": "map", "values": items}, st.dictionaries(
            st.text(max_size=3), values, max_size=3
        )
    if kind == "record":
        fields = [draw(_types(depth - 1, f"{name}{n}")) for n in range(draw(st.integers(1, 3)))]
        schema = {
            "type": "record",
            "name": name,
            "fields": [{"name": f"f{n}", "type": t} for n, (t, _) in enumerate(fields)],
        }
        return schema, st.fixed_dictionaries(
            {f"f{n}": values for n, (_, values) in enumerate(fields)}
        )
    scalar, values = draw(st.sampled_from(_SCALARS))
    return (["null", scalar], st.none() | values) if kind == "union" else (scalar, values)


def _schema(own: Any) -> dict[str, Any]:
    return {"type": "record", "name": "E", "fields": [ENVELOPE, {"name": "own", "type": own}]}


def _verdict(schema: Any, datum: bytes, event_id: bytes = ID) -> DatumVerdict:
    """Of native code, which must be that of Python."""
    program, value = compile_schema(schema), FRAME + datum
    found = check_value(array.array("I", program), event_id, value, len(FRAME))
    if native.MODULE is not None:
        offsets = struct.pack("2i", 0, len(value))
        made = check_datums(
            {7: program},
            struct.pack("i", 7),
            event_id,
            len(event_id),
            offsets,
            4,
            len(FRAME),
            value,
        )
        assert made == bytes([found])
    return found


@given(st.data())
def test_what_fastavro_writes_is_valid_and_what_is_refused_it_does_not_write(
    data: st.DataObject,
) -> None:
    own, values = data.draw(_types())
    schema = _schema(own)
    parsed = fastavro.parse_schema(schema)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, {"event_id": ID, "own": data.draw(values)})
    datum = out.getvalue()
    assert _verdict(schema, datum) is DatumVerdict.VALID
    changed = bytearray(datum)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changed)))
        changed[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    if len(changed) < len(ID) or changed[: len(ID)] != ID:
        assert _verdict(schema, bytes(changed)) is not DatumVerdict.VALID
        return
    is_valid = _verdict(schema, bytes(changed)) is DatumVerdict.VALID
    stream, again = io.BytesIO(bytes(changed)), io.BytesIO()
    try:
        row = fastavro.schemaless_reader(stream, parsed, None)
        fastavro.schemaless_writer(again, parsed, row)
        read = stream.tell() == len(changed)
    except Exception:  # noqa: BLE001  # a decoder raises anything
        read = False
    assert read if is_valid else not read or again.getvalue() != changed


@pytest.mark.parametrize(
    ("own", "datum", "wanted"),
    [
        ("null", b"", DatumVerdict.VALID),
        ("null", b"x", DatumVerdict.TRAILING),
        ("boolean", b"\x02", DatumVerdict.BAD_BOOLEAN),
        ("int", encode_long(1 << 31), DatumVerdict.BAD_NUMBER),
        ("long", b"\xff" * 9 + b"\x01", DatumVerdict.VALID),
        ("long", b"\xff" * 9 + b"\x02", DatumVerdict.BAD_NUMBER),
        ("long", b"\xff\xff\xff", DatumVerdict.TOO_SHORT),
        ("double", b"1234567", DatumVerdict.TOO_SHORT),
        ("bytes", encode_long(-1), DatumVerdict.BAD_LENGTH),
        ("bytes", encode_long((1 << 63) - 1), DatumVerdict.TOO_SHORT),
        ("string", encode_long(2) + b"\xc0\x80", DatumVerdict.BAD_TEXT),
        ("string", encode_long(3) + b"\xed\xa0\x80", DatumVerdict.BAD_TEXT),
        ({"type": "enum", "name": "N", "symbols": ["A"]}, encode_long(-1), DatumVerdict.BAD_ENUM),
        ({"type": "int", "logicalType": "time-millis"}, encode_long(-1), DatumVerdict.BAD_NUMBER),
        ({"type": "long", "logicalType": "no-such"}, encode_long(-(1 << 63)), DatumVerdict.VALID),
        (["null", "long"], encode_long(2), DatumVerdict.BAD_UNION),
        (
            {"type": "array", "items": "long"},
            encode_long(-2) + encode_long(2) + b"\x02\x02\x00",
            DatumVerdict.VALID,
        ),
        (
            {"type": "array", "items": "long"},
            encode_long(-2) + encode_long(3) + b"\x02\x02\x00",
            DatumVerdict.BAD_BLOCK,
        ),
        (
            {"type": "array", "items": "long"},
            encode_long(-(1 << 63)) + encode_long(0),
            DatumVerdict.BAD_BLOCK,
        ),
        ({"type": "array", "items": "null"}, encode_long(1000) + b"\x00", DatumVerdict.VALID),
    ],
)
def test_each_violation_has_its_reason(own: Any, datum: bytes, wanted: DatumVerdict) -> None:
    assert _verdict(_schema(own), ID + datum) is wanted


_DAY: Final = 86_400_000


@pytest.mark.parametrize(
    ("kind", "logical", "good", "bad"),
    [
        (
            "long",
            "timestamp-millis",
            (-62_135_596_800_000, 253_402_300_799_999),
            (-62_135_596_800_001, 253_402_300_800_000),
        ),
        (
            "long",
            "local-timestamp-micros",
            (0, 253_402_300_799_999_999),
            (253_402_300_800_000_000, -(1 << 63)),
        ),
        ("int", "date", (-719_162, 2_932_896), (-719_163, 2_932_897)),
        ("int", "time-millis", (0, _DAY - 1), (_DAY,)),
        ("long", "time-micros", (0, _DAY * 1000 - 1), (_DAY * 1000,)),
    ],
)
def test_a_date_or_time_that_fastavro_cannot_read_is_not_valid(
    kind: str, logical: str, good: tuple[int, ...], bad: tuple[int, ...]
) -> None:
    schema = _schema(["null", {"type": kind, "logicalType": logical}])
    parsed = fastavro.parse_schema(schema)
    for value in good:
        datum = ID + encode_long(1) + encode_long(value)
        assert _verdict(schema, datum) is DatumVerdict.VALID
        assert fastavro.schemaless_reader(io.BytesIO(datum), parsed, None)
    for value in bad:
        datum = ID + encode_long(1) + encode_long(value)
        assert _verdict(schema, datum) is DatumVerdict.BAD_NUMBER
        with pytest.raises((ValueError, OverflowError)):
            fastavro.schemaless_reader(io.BytesIO(datum), parsed, None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"123e4567-e89b-12d3-a456-426614174000", DatumVerdict.VALID),
        (b"123E4567-E89B-12D3-A456-426614174000", DatumVerdict.VALID),
        (b"123e4567-e89b-12d3-a456-42661417400g", DatumVerdict.BAD_UUID),
        (b"123e4567xe89b-12d3-a456-426614174000", DatumVerdict.BAD_UUID),
        (b"123e4567-e89b-12d3-a456-4266141740001", DatumVerdict.BAD_UUID),
        (b"\xc3\xa93e4567-e89b-12d3-a456-42661417400", DatumVerdict.BAD_UUID),
        (b"", DatumVerdict.BAD_UUID),
    ],
)
def test_a_string_of_the_logical_type_uuid_is_one(text: bytes, wanted: DatumVerdict) -> None:
    schema = _schema({"type": "string", "logicalType": "uuid"})
    assert _verdict(schema, ID + encode_long(len(text)) + text) is wanted
    assert _verdict(schema, ID + encode_long(36) + b"123e4567") is DatumVerdict.TOO_SHORT


@pytest.mark.parametrize("size", [*range(1, 20), 33])
def test_a_byte_that_is_no_utf8_is_found_at_every_place_of_a_string(size: int) -> None:
    for place in range(size):
        text = bytearray(b"a" * size)
        text[place] = 0xFF
        assert (
            _verdict(_schema("string"), ID + encode_long(size) + bytes(text))
            is DatumVerdict.BAD_TEXT
        )
    assert _verdict(_schema("string"), ID + encode_long(size) + b"a" * size) is DatumVerdict.VALID


def test_records_without_bytes_that_double_at_each_level_end_quickly() -> None:
    own: Any = "null"
    for level in range(40):
        inner = [
            {"name": "a", "type": own},
            {"name": "b", "type": f"R{level - 1}" if level else "null"},
        ]
        own = {"type": "record", "name": f"R{level}", "fields": inner}
    assert _verdict(_schema(own), ID) is DatumVerdict.TOO_MUCH


@pytest.mark.slow
@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "Empty", "fields": []}])
def test_a_count_of_items_without_bytes_ends_quickly(items: Any) -> None:
    schema = _schema({"type": "array", "items": items})
    assert _verdict(schema, ID + encode_long(1 << 62) + b"\x00") is DatumVerdict.TOO_MUCH


def test_a_recursive_record_is_valid_up_to_a_bounded_depth() -> None:
    own = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    assert _verdict(_schema(own), ID + encode_long(1) * 50 + b"\x00") is DatumVerdict.VALID
    assert _verdict(_schema(own), ID + encode_long(1) * 5000 + b"\x00") is DatumVerdict.TOO_DEEP


def test_another_id_and_a_missing_datum_are_refused() -> None:
    assert _verdict(_schema("null"), ID, bytes(16)) is DatumVerdict.OTHER_ID
    assert _verdict(_schema("null"), b"") is DatumVerdict.TOO_SHORT
    assert (
        check_value(array.array("I", compile_schema(_schema("null"))), ID, b"\x00", len(FRAME))
        is DatumVerdict.NO_FRAMING
    )


def test_every_refusal_has_a_text_and_only_records_with_an_id_hold_one() -> None:
    assert REASONS.keys() == set(DatumVerdict) - {DatumVerdict.VALID}
    assert holds_event_id(_schema("long"))
    assert not holds_event_id(
        {"type": "record", "name": "E", "fields": [{"name": "a", "type": "long"}]}
    )


def test_an_unknown_type_is_no_schema() -> None:
    with pytest.raises(ValueError, match="not valid"):
        compile_schema(_schema("no-such-type"))


@needs_module
@given(st.lists(st.integers(0, 20), min_size=1, max_size=40))
def test_words_that_are_no_program_are_refused_and_others_run(words: list[int]) -> None:
    program = array.array("I", words).tobytes()
    try:
        found = check_datums(
            {1: program}, struct.pack("i", 1), ID, 16, struct.pack("2i", 0, 40), 4, 0, bytes(40)
        )
    except ValueError:
        return
    assert DatumVerdict(found[0]) is check_value(words, ID, bytes(40), 0)


@needs_module
@pytest.mark.parametrize(
    ("keys", "offsets", "size"),
    [
        (ID, struct.pack("2i", 0, 6), 4),  # past the content
        (ID, struct.pack("2i", 5, 4), 4),
        (ID, struct.pack("2i", -1, 4), 4),
        (ID[:-1], struct.pack("2i", 0, 5), 4),
        (ID, struct.pack("2i", 0, 5), 5),
        (ID, struct.pack("i", 0), 4),
    ],
)
def test_buffers_that_are_no_column_are_refused(keys: bytes, offsets: bytes, size: int) -> None:
    with pytest.raises(ValueError, match="each value has"):
        check_datums(
            {1: compile_schema(_schema("null"))},
            struct.pack("i", 1),
            keys,
            16,
            offsets,
            size,
            0,
            b"12345",
        )


@pytest.mark.parametrize("module", [None, pytest.param(native.MODULE, marks=needs_module)])
def test_each_value_is_checked_by_the_program_of_its_own_schema_id(module: Any) -> None:
    programs = {
        n: compile_schema(_schema(own))
        for n, own in ((3, "null"), (-2, "boolean"), (90, "boolean"))
    } | {5: b""}
    schemas = [90, 3, 4, 3, 5, -2, 90]
    own = [b"\1", b"", b"\1", b"\1", b"", b"\0", b"\2"]
    values = [ID + of for of in own]
    offsets = array.array("q", itertools.accumulate(map(len, values), initial=0))
    made = check_datums(
        programs,
        array.array("i", schemas),
        ID * 7,
        16,
        offsets,
        8,
        0,
        b"".join(values),
        module=module,
    )
    valid = DatumVerdict.VALID
    assert list(made) == [
        valid,
        valid,
        NO_PROGRAM,
        DatumVerdict.TRAILING,
        NO_PROGRAM,
        valid,
        DatumVerdict.BAD_BOOLEAN,
    ]


@needs_module
@pytest.mark.parametrize(
    ("ids", "starts", "words"),
    [
        ([1, 1], [0, 1, 2], [0, 0]),  # twice
        ([2, 1], [0, 1, 2], [0, 0]),
        ([1], [0], [0]),
        ([1], [0, 0], []),  # empty
        ([1], [0, 2], [0]),
        ([1], [1, 1], [0]),
        ([1, 2], [0, 2, 1], [0]),
        ([1, 2], [0, -1, 1], [0]),
        ([1], [0, 1], [99]),
    ],
)
def test_buffers_that_are_no_programs_are_refused(
    ids: list[int], starts: list[int], words: list[int]
) -> None:
    assert native.MODULE is not None
    packed = (array.array(kind, of) for kind, of in (("i", ids), ("q", starts), ("I", words)))
    with pytest.raises(ValueError, match="nodes are not whole"):
        native.MODULE.check_datums(
            *packed, struct.pack("i", 1), ID, 16, struct.pack("2i", 0, 16), 4, 0, ID
        )
