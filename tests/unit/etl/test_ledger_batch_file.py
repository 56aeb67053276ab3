"""The batch file gives back what was written, and says what is wrong with one that is damaged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.ledger.batch_file import NAME, BatchFile, read_batch_file, write_batch_file
from etl.ledger.rows import AUDIT, EVENTS, AuditGroup, Position, Span, StagedBatch, StagedFile, StagedGroup
from etl.storage import AlreadyExists, LocalDisk, NotFound

SUMS = st.integers(0, 2**64 - 1)
IDS = st.binary(min_size=16, max_size=16)
POSITIONS = st.builds(
    Position,
    st.just("cluster"),
    st.text(),
    st.text(),
    st.integers(0, 9),
    st.integers(0, 2**62),
    st.sampled_from(["default", "big"]),
)
GROUPS = st.builds(
    StagedGroup, st.just("_staging/one/events-1.parquet"), st.text(), st.integers(0, 2**40), st.integers(1, 2**40),
    st.integers(0, 2**40), SUMS, st.lists(st.integers(1, 2**31 - 1)).map(tuple), st.integers(0, 2**40), IDS, IDS,
)  # fmt: skip
AUDITS = st.builds(
    AuditGroup, st.just("_staging/one/audit-1.parquet"), st.text(), st.integers(0, 2**40), st.integers(1, 9), st.integers(0, 9),
    st.integers(9, 99), st.integers(1, 2**40), SUMS,
)  # fmt: skip
FILES = st.builds(
    StagedFile, st.text(), st.sampled_from([EVENTS, AUDIT]), st.integers(1, 99), st.just((Span("t", "id", 0, 3, 9),))
)
BATCHES = st.builds(
    StagedBatch, st.just("_staging/one"), st.lists(POSITIONS).map(tuple), st.lists(POSITIONS).map(tuple),
    st.lists(FILES).map(tuple), st.lists(GROUPS).map(tuple), st.lists(AUDITS).map(tuple), st.just(()),
)  # fmt: skip
EMPTY = StagedBatch("_staging/one", (), (), (), (), (), ())


@given(BATCHES, st.integers(1, 2**40), st.integers(0, 2**40))
def test_every_batch_comes_back_as_it_was(batch: StagedBatch, epoch: int, sequence: int) -> None:
    file = BatchFile("uuid", epoch, sequence, batch)
    assert BatchFile.decode(file.encode()) == file


def test_it_stands_in_the_batchs_folder_and_is_written_once(tmp_path: Path) -> None:
    storage = LocalDisk(root=tmp_path)
    file = BatchFile("uuid", 1, 0, EMPTY)
    with pytest.raises(NotFound):
        read_batch_file(storage, "_staging/one")
    write_batch_file(storage, file)
    assert read_batch_file(storage, "_staging/one") == file
    with pytest.raises(AlreadyExists):
        write_batch_file(storage, dataclasses.replace(file, sequence=1))


def test_a_damaged_one_is_refused_by_its_path(tmp_path: Path) -> None:
    storage = LocalDisk(root=tmp_path)
    storage.write_new(f"_staging/cut/{NAME}", BatchFile("uuid", 1, 0, EMPTY).encode()[:-3])
    storage.write_new(f"_staging/moved/{NAME}", BatchFile("uuid", 1, 0, EMPTY).encode())
    with pytest.raises(ValueError, match=r"_staging/cut/batch.json.zst: not a batch file"):
        read_batch_file(storage, "_staging/cut")
    with pytest.raises(ValueError, match=r"_staging/moved/batch.json.zst: it speaks of _staging/one"):
        read_batch_file(storage, "_staging/moved")
