"""Containers of concatenated datums are ordinary Avro: fastavro reads back what was encoded."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, get_args

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.containers import append_all

from hourmark.avro.framing import encode_long, event_schema
from hourmark.config.groups import AvroCodec
from hourmark_etl.buckets.avro_container import ContainerReader, ContainerWriter

ENVELOPE_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "event_id": st.binary(min_size=16, max_size=16),
    "event_time": st.integers(0, 2**47),
    "host": st.text(max_size=20),
    "source": st.text(max_size=20),
    "file": st.none()
    | st.fixed_dictionaries({"id": st.text(max_size=8), "generation": st.integers(0, 2**63 - 1)}),
    "position": st.integers(-(2**63), 2**63 - 1),
}
# Logical types are left out of the datums compared: what is proved is bytes in, bytes out.
EVENT = event_schema(
    "end-song", [{"name": "line", "type": "bytes"}, {"name": "ms", "type": ["null", "double"]}]
)
CASES: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    (
        EVENT,
        st.fixed_dictionaries(
            {
                **ENVELOPE_VALUES,
                "line": st.binary(max_size=300),
                "ms": st.none() | st.floats(allow_nan=False),
            }
        ),
    ),
    ({"type": "string"}, st.text(max_size=100)),
    ({"type": "array", "items": "long"}, st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20)),
    ({"type": "record", "name": "Empty", "fields": []}, st.just({})),
    (
        {"type": "map", "values": ["null", "boolean", "bytes"]},
        st.dictionaries(st.text(), st.none() | st.booleans() | st.binary()),
    ),
]


CODECS: tuple[AvroCodec, ...] = get_args(AvroCodec)


def encode(schema: dict[str, Any], value: object) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def written(datums: Iterable[bytes], schema: str = '"string"', **options: Any) -> io.BytesIO:
    """A container of them."""
    file = io.BytesIO()
    writer = ContainerWriter(file, schema, **options)
    append_all(writer, datums)
    writer.close()
    file.seek(0)
    return file


@st.composite
def contents(draw: st.DrawFn) -> tuple[dict[str, Any], list[bytes]]:
    schema, values = draw(st.sampled_from(CASES))
    return schema, [encode(schema, value) for value in draw(st.lists(values, max_size=30))]


@given(
    contents(),
    st.sampled_from([1, 64, 1000, 1 << 20]),
    st.sampled_from(["one by one", "run"]),
    st.sampled_from(CODECS),
)
def test_any_reader_finds_the_datums_that_were_appended(
    content: tuple[dict[str, Any], list[bytes]], block_bytes: int, way: str, codec: AvroCodec
) -> None:
    schema, datums = content
    file = io.BytesIO()
    writer = ContainerWriter(file, json.dumps(schema), codec=codec, block_bytes=block_bytes)
    if way == "one by one":
        for datum in datums:
            append_all(writer, [datum])
    else:
        offsets = np.cumsum([3, *map(len, datums)])
        writer.append_run(memoryview(b"xxx" + b"".join(datums) + b"yyy"), offsets)
    stats = writer.close()
    assert (stats.records, stats.bytes) == (len(datums), len(file.getvalue()))
    assert stats.blake2b == hashlib.blake2b(file.getvalue(), digest_size=16).hexdigest()
    file.seek(0)
    parsed = fastavro.parse_schema(schema)
    expected = [fastavro.schemaless_reader(io.BytesIO(datum), parsed, None) for datum in datums]
    assert list(fastavro.reader(file)) == expected
    file.seek(0)
    walk = ContainerReader(file)
    blocks = list(walk)
    assert sum(b.records for b in blocks) == len(datums)
    assert b"".join(map(walk.content, blocks)) == b"".join(datums)
    assert [
        v for b in blocks for v in fastavro.reader(io.BytesIO(walk.single_block_container(b)))
    ] == expected


def test_a_container_that_is_cut_off_or_changed_is_no_shorter_container() -> None:
    content = written(
        (encode({"type": "string"}, f"text {n}") for n in range(50)), block_bytes=10
    ).getvalue()
    for end in range(len(content) - 1, len(content) - 60, -1):
        with suppress(EOFError):
            assert sum(b.records for b in ContainerReader(io.BytesIO(content[:end]))) < 50
    with pytest.raises(ValueError, match="sync marker"):
        list(ContainerReader(io.BytesIO(content[:-1] + bytes([content[-1] ^ 1]))))
    with pytest.raises(ValueError, match="begin with the header of an Avro container"):
        ContainerReader(io.BytesIO(b"PAR1"))


@pytest.mark.parametrize("codec", CODECS)
def test_a_block_that_is_cut_off_or_longer_than_its_stream_is_damaged(codec: AvroCodec) -> None:
    text = "".join(chr(33 + n * n % 89) for n in range(5_000))
    container = ContainerReader(written([encode({"type": "string"}, text)], codec=codec))
    (block,) = container
    assert container.content(block).endswith(text.encode())
    for data in (block.data[:-1], block.data[: len(block.data) // 2], block.data + b"x"):
        with pytest.raises(ValueError, match="cannot be decompressed"):
            container.content(block._replace(data=data))


def test_a_codec_of_other_programs_is_refused_by_name() -> None:
    container = ContainerReader(written([b"\x02a"]))
    container.metadata["avro.codec"] = b"snappy"
    with pytest.raises(ValueError, match="snappy"):
        container.content(next(iter(container)))


@pytest.mark.parametrize("codec", CODECS)
def test_the_writer_schema_is_embedded_exactly(codec: AvroCodec) -> None:
    schema_json = json.dumps(EVENT, indent=3) + "\n"
    reader = fastavro.reader(written([], schema_json, codec=codec))
    assert reader.codec == codec
    assert reader.metadata["avro.schema"] == schema_json
    assert list(reader) == []


def test_blocks_are_bounded_and_a_larger_datum_gets_its_own() -> None:
    schema = {"type": "bytes"}
    values = [b"a" * 10, b"b" * 10, b"c" * 500, b"d" * 10, b"e" * 80, b"f" * 20]
    file = written((encode(schema, value) for value in values), json.dumps(schema), block_bytes=100)
    blocks = [list(block) for block in fastavro.block_reader(file)]
    assert blocks == [values[:2], values[2:3], values[3:5], values[5:]]


def test_a_datum_may_be_reused_by_its_owner_after_append() -> None:
    buffer = bytearray(encode({"type": "string"}, "first"))
    file = io.BytesIO()
    writer = ContainerWriter(file, '"string"')
    writer.append_run(memoryview(buffer), np.array([0, len(buffer)]))
    buffer[:] = encode({"type": "string"}, "other")
    writer.close()
    file.seek(0)
    assert list(fastavro.reader(file)) == ["first"]


def test_a_closed_writer_takes_nothing_more() -> None:
    writer = ContainerWriter(io.BytesIO(), '"string"')
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        append_all(writer, [b"\x02a"])
    with pytest.raises(ValueError, match="closed"):
        writer.close()


@given(st.integers(-(2**63), 2**63 - 1))
def test_longs_are_encoded_as_avro_has_them(value: int) -> None:
    assert encode_long(value) == encode({"type": "long"}, value)


def test_an_altered_byte_changes_the_digest_or_is_unreadable() -> None:
    file = io.BytesIO()
    writer = ContainerWriter(file, '"string"')
    append_all(writer, [encode({"type": "string"}, "content")])
    stats = writer.close()
    altered = bytearray(file.getvalue())
    altered[-20] ^= 1
    assert hashlib.blake2b(altered, digest_size=16).hexdigest() != stats.blake2b
