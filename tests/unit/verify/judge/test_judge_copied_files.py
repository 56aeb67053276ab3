"""Files that are copied and truncated: events of the copy's lines bear the original's id, and are
of the copy all the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.support.judged.world import HOST_ID, START_MS, Row, World, identity, rfc5424
from tests.unit.verify.judge.test_judge_right_worlds import found

from hourmark.records.event_id import LineIds

OLD: Final = rfc5424("lines", START_MS, b"before it was truncated")
NEW: Final = rfc5424("lines", START_MS + 1000, b"after it was truncated")


class Copied:
    """A log that was truncated once, and its copy; nothing is in any bucket yet."""

    def __init__(self, folder: Path, *, told: bool = True) -> None:
        self.world = World(folder)
        self.log = self.world.source("app.log", NEW + b"\n")
        self.copy = self.world.source("app.log.1", OLD + b"\n")
        self.world.files = [{"path": f"{self.log}*", "source": "s", "copied": told}]

    def put(self, line: bytes, time_ms: int, *, read_in: Path, generation: int = 0) -> Row:
        """The event of a line, as a tailer makes it that read it in this file, which had been
        truncated so often.
        """
        row = self.world.row(self.log, 0, line, time_ms, line=line.partition(b" lines - ")[2])
        made = LineIds(HOST_ID, identity(read_in), generation).make(time_ms, 0, line)
        row |= {
            "event_id": bytes(made),
            "file": {"id": identity(read_in), "generation": generation},
        }
        self.world.plan_at("lines", time_ms).rows.append(row)
        return row


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    return Copied(tmp_path)


@pytest.mark.parametrize(
    "in_copy", [False, True], ids=["read before it was truncated", "read in its copy"]
)
def test_lines_are_found_whichever_file_they_were_read_in(copied: Copied, in_copy: bool) -> None:
    copied.put(OLD, START_MS, read_in=copied.copy if in_copy else copied.log)
    copied.put(NEW, START_MS + 1000, read_in=copied.log, generation=1)
    assert found(copied.world) == []


def test_a_line_read_in_the_log_and_again_in_its_copy_is_doubled(copied: Copied) -> None:
    copied.put(OLD, START_MS, read_in=copied.log)
    copied.put(OLD, START_MS, read_in=copied.copy)
    copied.put(NEW, START_MS + 1000, read_in=copied.log, generation=1)
    assert found(copied.world) == [("doubled", 0)]


def test_a_line_that_only_the_copy_has_is_lost_where_no_event_is_of_it(copied: Copied) -> None:
    copied.put(NEW, START_MS + 1000, read_in=copied.log, generation=1)
    assert found(copied.world) == [("lost", 0)]


def test_an_event_of_no_line_is_no_copys(copied: Copied) -> None:
    copied.put(OLD, START_MS, read_in=copied.log)
    copied.put(NEW, START_MS + 1000, read_in=copied.log, generation=1)
    copied.put(OLD.replace(b"before", b"BEFORE"), START_MS, read_in=copied.log, generation=7)
    assert [kind for kind, _ in found(copied.world)] == ["unexpected"]


def test_of_files_that_are_not_copied_the_id_names_the_file(tmp_path: Path) -> None:
    copied = Copied(tmp_path, told=False)
    copied.put(OLD, START_MS, read_in=copied.log, generation=1)
    copied.put(NEW, START_MS + 1000, read_in=copied.log)
    assert sorted(kind for kind, _ in found(copied.world)) == ["lost", "unexpected"]
