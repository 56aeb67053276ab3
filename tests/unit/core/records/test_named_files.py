"""Log files as they were when a user named them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hourmark.errors import ConfigError
from hourmark.records.named_files import (
    HEAD_BYTES,
    observe_files,
    read_named_files,
    save_named_files,
)


def test_observations_survive_a_round_trip_and_the_latest_of_a_path_is_kept(tmp_path: Path) -> None:
    file, log = tmp_path / "out" / "named-files.json", tmp_path / os.fsdecode(b"a \xff.log")
    log.write_bytes(b"\xfe" * 1000)
    link = tmp_path / "link.log"
    link.symlink_to(log)
    first = observe_files([log, link], 1)
    save_named_files(file, first)
    assert read_named_files(file) == first
    assert [one.target for one in first] == ["", str(log)]
    assert (first[0].head, first[0].size) == (b"\xfe" * HEAD_BYTES, 1000)
    later = observe_files([log], 2)
    save_named_files(file, later)
    assert read_named_files(file) == [later[0], first[1]]


def test_paths_that_cannot_be_read_are_omitted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert observe_files([tmp_path, tmp_path / "pipe", tmp_path / "gone"], 1) == []
    assert read_named_files(tmp_path / "named-files.json") == []


def test_space_that_a_writer_allocated_ahead_is_no_content(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one line\n" + bytes(5000))
    (found,) = observe_files([log], 1)
    assert (found.head, found.size) == (b"one line\n", 9)
    log.write_bytes(b"")
    assert observe_files([log], 1)[0].size == 0


@pytest.mark.parametrize("content", ["", "{}{}", '{"a": 1}', '[{"path": "/x"}]', "[3]"])
def test_a_damaged_file_is_reported_with_the_next_step(tmp_path: Path, content: str) -> None:
    file = tmp_path / "named-files.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match="delete it"):
        read_named_files(file)
