"""What a file that was not read yet is a copy of, as far as that can be told by what is known of
its log.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.support.tailer.host import lines
from tests.support.waiting import wait_for

from hourmark.process.file_identity import identify
from hourmark_producer.files.fingerprints import ANCHOR_BYTES, HEAD_BYTES, Truncation
from hourmark_producer.files.tracked_file import (
    FileAccount,
    FileLocation,
    FileObservation,
    FilePosition,
    FileProgress,
    TrackedFile,
    TrackedFiles,
)
from hourmark_producer.files.waits import RetryLater
from hourmark_producer.history.copies import CopyCandidate, find_origin


def followed(
    path: Path, size: int, read_to: int, *, shrinks: tuple[Truncation, ...] = ()
) -> TrackedFile:
    """One that was last seen with so many bytes, and is read up to there; it begins with lines."""
    content, identity = lines(100), identify(descriptor := os.open(path, os.O_RDONLY))
    os.close(descriptor)
    file = TrackedFile(
        file_id=path.name, identity=identity, place=FileLocation("app", str(path), str(path))
    )
    head, anchor = (
        content[: min(read_to, HEAD_BYTES)],
        content[max(0, read_to - ANCHOR_BYTES) : read_to],
    )
    position = FilePosition(
        offset=read_to, head=b"" if shrinks else head, anchor=anchor, size_seen=size
    )
    file.progress = FileProgress(
        position=position, quiet_to=size, examined_at_s=1.0, examined_scan=1
    )
    account = FileAccount(size, shrinks, content[: min(size, HEAD_BYTES)])
    file.observed = FileObservation(size=size, mtime_ns=0, account=account, base_s=1.0)
    return file


@pytest.mark.parametrize(
    ("size", "read_to", "shrinks", "waits"),
    [
        (23, 23, (), True),  # the log was last seen with its first line
        (0, 0, (), True),  # with nothing: what it holds by now may be in the copy
        (460, 460, (), False),
        (
            460,
            4000,
            (Truncation(4000, 460, is_replaced=True),),
            True,
        ),  # it was truncated, and what it holds now is not read yet
    ],
)
def test_what_begins_as_a_log_of_which_too_little_is_known_waits(
    tmp_path: Path, size: int, read_to: int, shrinks: tuple[Truncation, ...], waits: bool
) -> None:
    for name in ("app.log", "app.log.1"):
        (tmp_path / name).write_bytes(lines(40))
    log, copy = (
        followed(tmp_path / "app.log", size, read_to, shrinks=shrinks),
        followed(tmp_path / "app.log.1", 0, 0),
    )
    content = lines(40) if size < 460 or shrinks else lines(40, 700)
    looked = CopyCandidate(
        len(content), lambda offset, count: content[offset : offset + count], is_new=True
    )
    if waits:
        with pytest.raises(RetryLater):
            find_origin(TrackedFiles([log, copy]), copy, looked)
    else:
        assert find_origin(TrackedFiles([log, copy]), copy, looked) is None
    if not shrinks:
        assert (
            find_origin(TrackedFiles([log, copy]), copy, looked._replace(is_new=False)) is None
        ), "not for ever"


def test_a_file_that_was_rotated_does_not_wait_for_what_the_next_will_hold(tmp_path: Path) -> None:
    """It is the older of the two; a copy is the younger."""
    for name in ("app.log.1", "app.log"):
        (tmp_path / name).write_bytes(lines(40))
        wait_for(
            lambda: time.time_ns() > (tmp_path / "app.log.1").stat().st_mtime_ns + 20_000_000,
            "clocks of file systems are coarse",
        )
    log, rotated = followed(tmp_path / "app.log", 0, 0), followed(tmp_path / "app.log.1", 0, 0)
    content = lines(40)
    looked = CopyCandidate(
        len(content), lambda offset, count: content[offset : offset + count], is_new=True
    )
    assert find_origin(TrackedFiles([log, rotated]), rotated, looked) is None
