"""Every suffix of a format that can be decompressed has a reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hourmark_producer.files.compressed import DecompressedReader
from hourmark_producer.files.patterns import PACKED


@pytest.mark.parametrize("suffix", PACKED)
def test_each_suffix_has_a_reader(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"app.log.1{suffix}"
    path.touch()
    DecompressedReader(os.open(path, os.O_RDONLY), str(path)).close()


def test_a_suffix_without_a_reader_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "app.log.1.lz4"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(ValueError, match=r"\.lz4"):
        DecompressedReader(descriptor, str(path))
