"""A checkpoint whose schema is damaged is refused: it does not fail at each commit instead."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hourmark_producer.checkpoint.database import Checkpoint, CheckpointBroken


def altered(path: Path, was: str, becomes: str) -> None:
    """As a flipped bit in the page that holds the schema."""
    content = path.read_bytes()
    assert was.encode() in content
    path.write_bytes(content.replace(was.encode(), becomes.encode(), 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint that was used and closed in order."""
    path = tmp_path / "checkpoint.sqlite"
    Checkpoint.create(path, "a" * 32)
    Checkpoint.open(path)[0].close()
    return path


def test_one_that_is_whole_is_opened(path: Path) -> None:
    Checkpoint.open(path)[0].close()


@pytest.mark.parametrize(
    ("was", "becomes", "name"),
    [
        ("json_extract(OLD", "json_extrqct(OLD", "range_left"),
        (
            "acknowledged + excluded.acknowledged",
            "acknowledged + excluded.acknowlcdged",
            "range_left",
        ),
        ("AFTER DELETE ON files", "AFTER INSERT ON files", "file_forgotten"),
    ],
)
def test_a_damaged_trigger_is_named(path: Path, was: str, becomes: str, name: str) -> None:
    altered(path, was, becomes)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA quick_check").fetchone() == ("ok",), "SQLite does not see it"
    with pytest.raises(CheckpointBroken, match=f"schema is damaged: {name}"):
        Checkpoint.open(path)


def test_a_damaged_column_is_an_error(path: Path) -> None:
    altered(path, "size_seen", "size_sedn")
    with pytest.raises(CheckpointBroken):
        Checkpoint.open(path)
