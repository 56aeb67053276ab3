"""Fingerprints and size of an open file belong to the same content."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hourmark_producer.files.examination import examine
from hourmark_producer.files.tracked_file import FilePosition


def test_the_size_of_a_file_that_was_replaced_meanwhile_is_not_that_of_the_former_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, status_of, left = tmp_path / "app.log", os.fstat, [b"the third\n" * 300]
    path.write_bytes(b"the second\n" * 10)

    def truncated_and_grown_before(descriptor: int) -> os.stat_result:
        if left:
            path.write_bytes(left.pop())
        return status_of(descriptor)

    monkeypatch.setattr(os, "fstat", truncated_and_grown_before)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found, status, size = examine(descriptor, FilePosition())
    finally:
        os.close(descriptor)
    assert found.head.startswith(b"the third")
    assert size == status.st_size == 3000
