"""Staged files verify themselves: whatever bit of one is flipped, what is read is right, or is not
read at all.
"""

from __future__ import annotations

import dataclasses
import io
import os
import random
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.memory_storage import MemoryStorage
from tests.support.records import audit_group, group, span

from hourmark.records.event_id import LineIds
from hourmark_etl.errors import Unreadable
from hourmark_etl.model import EVENTS
from hourmark_etl.staging import files, verified
from hourmark_etl.staging.files import (
    AUDIT_SCHEMA,
    EVENT_SCHEMA,
    ID_MAX,
    IdRange,
    RowSlice,
    read_all,
    read_note,
    read_rows,
    write_rows,
)
from hourmark_etl.staging.pieces import StagedNote
from hourmark_etl.staging.verified import VerifiedFile
from hourmark_etl.storage import StorageError

ROWS = 200
IDS = sorted(
    bytes(LineIds("a" * 32, "b" * 32, 0).make(1_800_000_000_000 + n, n, b"x")) for n in range(ROWS)
)
SPANS = (span(5, 5 + ROWS), span(0, 1, "events.view", partition=1))
GROUPS = (
    group("", rows=ROWS, low64_sum=2**64 - 1, schema_ids=(1, 2), first_id=IDS[0], last_id=IDS[-1]),
)
NOTE = StagedNote(ledger="uuid", kind=EVENTS, rows=ROWS, spans=SPANS, groups=GROUPS)
COLUMNS = ("event_id", "schema_id", "datum")
MIDDLE = int.from_bytes(IDS[ROWS // 2], "big")


@pytest.fixture(params=["small", "large"], autouse=True)
def few_rows_in_a_group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many row groups in a small file, as a large file has; and read as a large one is."""
    monkeypatch.setattr(files, "ROWS_IN_GROUP", 32)
    if request.param == "large":
        monkeypatch.setattr(verified, "SMALL_FILE_BYTES", 0)
        fetched_by_parts = partial(VerifiedFile, tail_bytes=64, gap_bytes_max=0)
        monkeypatch.setattr(files, "VerifiedFile", fetched_by_parts)


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    made = MemoryStorage()
    yield made
    made.forget()


def table() -> pa.Table:
    kinds = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array(["click"]))
    columns = [
        kinds,
        pa.array([1_800_000_000] * ROWS),
        pa.array(IDS, pa.binary(16)),
        pa.array([b"range%3d" % (n % 9) for n in range(ROWS)]),
        pa.array([n % 2 + 1 for n in range(ROWS)], pa.int32()),
        pa.array([b"datum %d" % n for n in range(ROWS)]),
        pa.array([0] * ROWS, pa.int32()),
        pa.array(range(ROWS)),
        pa.array(range(ROWS)),
    ]
    return pa.table(
        [c.cast(f.type) for c, f in zip(columns, EVENT_SCHEMA, strict=True)], schema=EVENT_SCHEMA
    )


@pytest.fixture
def path(storage: MemoryStorage) -> str:
    """Where the rows are written."""
    return write_rows(storage, "f/x", table(), NOTE).path


def read(storage: MemoryStorage, path: str) -> list[list[dict[str, object]]]:
    """Whole, by two id ranges, and a part of it."""
    halves = [IdRange(0, MIDDLE - 1), IdRange(MIDDLE, ID_MAX)]
    found = [
        read_rows(storage, path, [RowSlice(0, ROWS)], COLUMNS, within) for within in (None, *halves)
    ]
    found.append(read_rows(storage, path, [RowSlice(40, 3), RowSlice(150, 2)], COLUMNS))
    return [rows.to_pylist() for rows, _ in found]


def test_what_is_written_is_read_and_any_reader_can(storage: MemoryStorage, path: str) -> None:
    whole, low, high, part = read(storage, path)
    assert whole == table().select(list(COLUMNS)).to_pylist()
    assert low == whole[: ROWS // 2]
    assert high == whole[ROWS // 2 :]
    assert part == whole[40:43] + whole[150:152]
    assert read_all(storage, path, EVENT_SCHEMA.names).equals(table())
    assert pq.read_table(io.BytesIO(storage.read(path))).replace_schema_metadata().equals(table())


def test_a_column_that_a_file_of_an_older_version_does_not_have_is_null(
    storage: MemoryStorage,
) -> None:
    older = table().drop_columns(["value_hash"])
    path = write_rows(storage, "f/x", older, NOTE).path
    assert read_all(storage, path, ["value_hash", "offset"]).column("value_hash").null_count == ROWS
    found, _ = read_rows(storage, path, [RowSlice(40, 3)], ["event_id", "value_hash"], IdRange())
    assert (
        found.column("value_hash").to_pylist() == [None] * 3 and len(found.column("event_id")) == 3
    )


@pytest.mark.parametrize(
    "known",
    [{}, {"value_sum": 2**64 - 3, "unchecked": 1}],
    ids=["of version 0.3.0", "with checksums"],
)
def test_a_file_says_what_it_holds(storage: MemoryStorage, known: dict[str, int]) -> None:
    audit = audit_group(
        "", 3600, first_offset=7, last_offset=9, promised=2, low64_sum=2**63, **known
    )
    (events,) = (dataclasses.replace(g, value_sum=known.get("value_sum")) for g in GROUPS)
    note = dataclasses.replace(NOTE, groups=(events,), audit_groups=(audit,))
    path = write_rows(storage, "f/x", table(), note).path
    assert read_note(storage, path) == note.with_path(path)
    assert read_note(storage, path).groups[0].path == path
    no_rows = StagedNote(ledger="uuid", kind="audit", rows=0)
    assert (
        read_note(
            storage, write_rows(storage, "f/y", AUDIT_SCHEMA.empty_table(), no_rows).path
        ).rows
        == 0
    )


@pytest.mark.slow
def test_no_flipped_bit_gives_other_rows(storage: MemoryStorage, path: str) -> None:
    right, note, good = read(storage, path), read_note(storage, path), storage.read(path)
    seed = random.randrange(2**32)
    print("seed", seed)
    found = 0
    for bit in random.Random(seed).sample(
        range(8 * len(good)), int(os.environ.get("HOURMARK_BITS", "500"))
    ):
        put(storage, path, flipped(good, bit))
        for reading, truth in ((read, right), (read_note, note)):
            try:
                assert reading(storage, path) == truth, f"bit {bit}"
            except Unreadable as error:
                found += 1
                assert error.path == path
    assert found > 500


def test_a_file_that_was_cut_short_or_stands_under_another_name_is_unreadable(
    storage: MemoryStorage, path: str
) -> None:
    good = storage.read(path)
    for size in (*range(20), *range(20, len(good), 97)):
        put(storage, path, good[:size])
        with pytest.raises(Unreadable, match=path):
            read(storage, path)
    other = write_rows(storage, "f/y", table().slice(1), NOTE).path
    put(storage, other, good)
    with pytest.raises(Unreadable, match="its footer does not match the digest in its name"):
        read(storage, other)
    with pytest.raises(Unreadable, match="no such file"):
        read_note(storage, "f/gone-00.parquet")


def test_few_requests_fetch_what_is_asked_for_and_no_more(
    storage: MemoryStorage,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    asked: list[int] = []

    class Counted(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(len(got := super().read(size)))
            return got

    def counted(_: str) -> BinaryIO:
        return Counted(storage.read(path))

    monkeypatch.setattr(storage, "open", counted)
    if "large" in request.node.name:
        more_than_its_footer = partial(VerifiedFile, tail_bytes=8 << 10, gap_bytes_max=0)
        monkeypatch.setattr(files, "VerifiedFile", more_than_its_footer)
        read_rows(storage, path, [RowSlice(40, 3)], ("event_id",))
        assert len(asked) == 2
        assert asked[1] < 1000
    else:
        read_rows(storage, path, [RowSlice(0, ROWS)], COLUMNS)
        assert asked == [len(storage.read(path))]


def test_trouble_of_a_server_is_not_of_the_file(
    storage: MemoryStorage, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    class Away(StorageError):
        """As SafeMode is: of no path."""

    def away(_: str) -> BinaryIO:
        raise Away(path, path, "the server is away")

    monkeypatch.setattr(storage, "open", away)
    with pytest.raises(Away):
        read(storage, path)


def put(storage: MemoryStorage, path: str, content: bytes) -> None:
    storage.delete(path)
    storage.write_new(path, content)


def flipped(content: bytes, bit: int) -> bytes:
    bad = bytearray(content)
    bad[bit // 8] ^= 1 << bit % 8
    return bytes(bad)
