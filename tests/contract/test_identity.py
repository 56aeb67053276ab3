"""Identity: the golden vectors (made from the text of the contract, not by this code), and what
must hold for any input.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import byte_range

from hourmark.records.event_id import TIME_MS_MAX, EventId, LineIds, batch_event_id, client_event_id
from hourmark.records.ranges import ByteRange, Part, RangeId, batch_range_id, file_id
from hourmark.records.record_key import RecordKey

VECTORS = Path(__file__).parent / "vectors"
IDS = LineIds("a" * 32, "b" * 32, 0)
HEX = st.text("0123456789abcdef", min_size=32, max_size=32)


def _vectors(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


@pytest.mark.parametrize("vector", _vectors("event_ids")["lines"])
def test_line_event_ids_are_the_golden_ones(vector: dict[str, Any]) -> None:
    ids = LineIds(vector["host_id"], vector["file_id"], vector["generation"])
    made = ids.make(vector["time_ms"], vector["offset"], bytes.fromhex(vector["line"]))
    assert made.hex() == vector["event_id"]


def test_api_event_ids_are_the_golden_ones() -> None:
    vectors = _vectors("event_ids")
    for v in vectors["client"]:
        assert client_event_id(v["time_ms"], v["type"], v["client_id"]).hex() == v["event_id"]
    for v in vectors["batch"]:
        assert batch_event_id(v["time_ms"], v["type"], v["key"], v["index"]).hex() == v["event_id"]


def test_range_batch_and_file_ids_are_the_golden_ones() -> None:
    vectors = _vectors("ranges")
    for v in vectors["ranges"]:
        fields = {**v["fields"], "part": Part(v["fields"]["part"])}
        assert ByteRange(**fields).range_id(bytes.fromhex(v["body"])).hex() == v["range_id"]
    for v in vectors["batches"]:
        made = batch_range_id(
            v["type"],
            v["key"],
            v["client"],
            v["observed_at_ms"],
            v["rules"],
            bytes.fromhex(v["body"]),
        )
        assert made.hex() == v["range_id"]
    for v in vectors["files"]:
        assert file_id(v["device"], v["inode"], v["birth_ns"]) == v["file_id"]


@given(
    st.integers(0, TIME_MS_MAX),
    HEX,
    HEX,
    st.integers(0, 1 << 40),
    st.integers(0, (1 << 63) - 1),
    st.binary(max_size=300),
)
def test_an_event_id_is_a_uuid_version_8_that_tells_its_time(
    time_ms: int, host: str, file: str, generation: int, offset: int, line: bytes
) -> None:
    made = LineIds(host, file, generation).make(time_ms, offset, line)
    as_uuid = uuid.UUID(bytes=bytes(made))
    assert (as_uuid.version, as_uuid.variant) == (8, uuid.RFC_4122)
    assert made.time_ms == time_ms
    assert str(made) == str(as_uuid)
    assert made == LineIds(host, file, generation).make(time_ms, offset, line)


@given(
    st.lists(
        st.tuples(st.integers(0, TIME_MS_MAX), st.binary(max_size=20)), min_size=2, max_size=20
    )
)
def test_event_ids_sort_by_time(events: list[tuple[int, bytes]]) -> None:
    ids = [IDS.make(time_ms, 0, line) for time_ms, line in events]
    assert [i.time_ms for i in sorted(ids)] == sorted(time_ms for time_ms, _ in events)


@given(st.binary(max_size=50), st.integers(0, 1 << 40), st.integers(1, 1 << 20))
def test_another_position_or_line_gives_another_event_id(
    line: bytes, offset: int, further: int
) -> None:
    assert IDS.make(5, offset, line) != IDS.make(5, offset + further, line)
    assert IDS.make(5, offset, line) != IDS.make(5, offset, line + b"x")
    assert IDS.make(5, offset, line) != LineIds("a" * 32, "b" * 32, 1).make(5, offset, line)


@pytest.mark.parametrize("time_ms", [-1, TIME_MS_MAX + 1])
def test_a_time_that_does_not_fit_is_refused(time_ms: int) -> None:
    with pytest.raises(ValueError, match="outside the range of an event id"):
        IDS.make(time_ms, 0, b"")


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8))
def test_record_keys_come_back(event_id: bytes, range_id: bytes) -> None:
    key = RecordKey(EventId(event_id), RangeId(range_id))
    assert RecordKey.decode(key.encode()) == key


@pytest.mark.parametrize("size", [0, 23, 25])
def test_keys_of_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="24 bytes"):
        RecordKey.decode(bytes(size))


@pytest.mark.parametrize(
    "changes",
    [
        {"host_id": "c" * 32},
        {"file_id": "c" * 32},
        {"generation": 1},
        {"start": 1, "end": 3},
        {"observed_at_ms": 8},
        {"rules": "2-a"},
        {"zone": "Europe/Berlin"},
        {"source": "other"},
        {"path": "/other"},
        {"host_name": "i"},
        {"part": Part.CHUNK},
    ],
)
def test_every_field_that_parsing_depends_on_is_in_the_range_id(changes: dict[str, Any]) -> None:
    assert byte_range().range_id(b"a\n") != byte_range(**changes).range_id(b"a\n")
    assert byte_range().range_id(b"a\n") != byte_range().range_id(b"b\n")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"host_id": "x"}, "host_id"),
        ({"file_id": "A" * 32}, "file_id"),
        ({"generation": -1}, "generation"),
        ({"start": 2}, "not after start"),
        ({"path": ""}, "path"),
        ({"zone": "z" * 65}, "zone"),
    ],
)
def test_a_wrong_range_is_refused_by_the_name_of_its_field(
    changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        byte_range(**changes)


def test_a_body_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="the range has 2 bytes, but the body has 3"):
        byte_range().range_id(b"abc")
