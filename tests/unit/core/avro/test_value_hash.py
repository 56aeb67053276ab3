"""Value hashes: the compiled module gives what the reference gives, for columns of any offsets; a
changed bit changes them.
"""

from __future__ import annotations

import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hourmark_native as native
from hourmark.avro.framing import framing_header
from hourmark.avro.value_hash import value_hash

ID: Final = bytes(range(16))
VALUES: Final = st.lists(
    st.tuples(
        st.binary(min_size=16, max_size=16), st.integers(0, (1 << 31) - 1), st.binary(max_size=300)
    )
)
needs_module = pytest.mark.skipif(native.MODULE is None, reason="the compiled module is not there")


@needs_module
@given(VALUES, st.sampled_from([("i", 4), ("q", 8)]), st.binary(max_size=9))
def test_the_compiled_module_hashes_as_the_reference(
    records: list[tuple[bytes, int, bytes]], width: tuple[str, int], before: bytes
) -> None:
    assert native.MODULE is not None
    code, size = width
    values = [framing_header(schema_id) + datum for _, schema_id, datum in records]
    offsets = [len(before)]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    seeds = [(int.from_bytes(i[8:], "big") + schema_id) % (1 << 64) for i, schema_id, _ in records]
    hashes = native.MODULE.value_hashes(
        struct.pack(f"{len(seeds)}Q", *seeds),
        struct.pack(f"{len(offsets)}{code}", *offsets),
        size,
        5,
        before + b"".join(values),
    )
    wanted = [value_hash(i, value) for (i, _, _), value in zip(records, values, strict=True)]
    assert list(struct.unpack(f"{len(values)}Q", hashes)) == wanted


@given(st.binary(min_size=1, max_size=200), st.data())
def test_each_bit_of_id_schema_and_datum_counts(datum: bytes, data: st.DataObject) -> None:
    value = bytearray(framing_header(7) + datum)
    known = value_hash(ID, bytes(value))
    bit = data.draw(st.integers(8, 8 * len(value) - 1))
    value[bit // 8] ^= 1 << bit % 8
    assert value_hash(ID, bytes(value)) != known
    tail = bytearray(ID)
    tail[8 + data.draw(st.integers(0, 7))] ^= 1
    assert value_hash(bytes(tail), framing_header(7) + datum) != known


@needs_module
@pytest.mark.parametrize(
    ("seeds", "offsets", "size", "content"),
    [
        (b"12345678", struct.pack("2i", 0, 4), 4, b"12345"),  # shorter than what is skipped
        (b"12345678", struct.pack("2i", 0, 6), 4, b"12345"),  # past the content
        (b"12345678", struct.pack("2i", 6, 0), 4, b"123456"),
        (b"12345678", struct.pack("2i", -6, 0), 4, b"123456"),
        (b"1234567", struct.pack("2i", 0, 6), 4, b"123456"),
        (b"12345678", struct.pack("3i", 0, 6, 6), 4, b"123456"),
        (b"12345678", struct.pack("2q", 0, 1 << 62), 8, b"123456"),
        (b"12345678", struct.pack("2i", 0, 6), 5, b"123456"),
    ],
)
def test_offsets_that_describe_no_column_are_refused(
    seeds: bytes, offsets: bytes, size: int, content: bytes
) -> None:
    assert native.MODULE is not None
    with pytest.raises(ValueError, match="a seed has 8 bytes"):
        native.MODULE.value_hashes(seeds, offsets, size, 5, content)
