"""Files that a writer allocates ahead: lines appear where NULs stood, and neither size nor time of
the file need tell.
"""

from __future__ import annotations

import contextlib
import gzip
import mmap
import os
import time
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark_producer.files import examination, waits
from hourmark_producer.files.examination import content_end
from hourmark_producer.files.fingerprints import HEAD_BYTES
from hourmark_producer.files.tracked_file import FilePosition

LINE = len(lines(1))


def claimed_since(recorder: Recorder, since_ms: int) -> bool:
    return (recorder.last.caught_up_at_ms or 0) > since_ms if recorder.reports else False


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def reserve(path: Path, size: int, *, written: bool) -> None:
    """NULs: in blocks of the disk, or as a hole."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(b"\0" * size) if written else file.truncate(size)


@pytest.mark.slow
@pytest.mark.parametrize("written", [False, True], ids=["hole", "zeros"])
@pytest.mark.parametrize("size", [1 << 16, 1 << 23], ids=["small", "more than a line may have"])
def test_each_claim_holds_while_a_mapped_file_is_filled(
    host: Host, recorder: Recorder, size: int, written: bool
) -> None:
    host.settings["line_bytes_max"] = host.settings["range_bytes"] = 1 << 20
    reserve(host.app, size, written=written)
    with host.app.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped, host.running():
        for number in range(0, 400, 40):
            mapped.write(lines(40, number))
            at_ms = now_ms() + 1
            wait_for(lambda: claimed_since(recorder, at_ms), "it is caught up", 30)  # noqa: B023
            assert recorder.text() == lines(number + 40), "what was claimed is delivered"
        assert recorder.last.pending_bytes == 0, "NULs at the end are no lines that wait"
    os.truncate(host.app, 400 * LINE)  # as the writer does when it closes the file
    assert host.drain(lines(1, 400)).finished
    assert recorder.text() == lines(401)
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0), "NULs are no loss"


def test_a_restart_goes_on_where_lines_were_written_meanwhile(
    host: Host, recorder: Recorder
) -> None:
    reserve(host.app, 1 << 16, written=False)
    for number in range(3):
        with host.app.open("r+b") as file:
            file.seek(number * 10 * LINE)
            file.write(lines(10, number * 10))
        assert host.drain().finished
        assert recorder.text() == lines(number * 10 + 10)
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


def test_a_line_half_of_which_is_not_there_yet_is_waited_for(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS: the second page of what was written can be read before the first."""
    monkeypatch.setattr(waits, "NULS_S", 1000.0)
    content = lines(20)
    with host.running():
        with host.app.open("wb", buffering=0) as file:
            os.pwrite(file.fileno(), content[200:], 200)
            wait_for(lambda: len(recorder.reports) > 5, "some looks")
            os.pwrite(file.fileno(), content[:200], 0)
        recorder.wait_text(content)


def test_nuls_that_stay_among_lines_are_delivered(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after copytruncate of a log whose writer does not append."""
    monkeypatch.setattr(waits, "NULS_S", 0.2)
    content = b"\0" * 5000 + lines(10)
    assert host.drain(content).finished
    assert recorder.text() == content


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "restarted"])
def test_a_file_that_is_truncated_and_allocated_again_loses_nothing_that_was_read(
    host: Host, recorder: Recorder, is_running: bool
) -> None:
    """The NULs where content was read are no content that a later truncation could destroy."""
    host.drain(lines(20))
    with host.running() if is_running else contextlib.nullcontext():
        host.app.write_bytes(b"")
        reserve(host.app, 1000, written=False)
    with host.running():
        at_ms = now_ms() + 1
        wait_for(lambda: claimed_since(recorder, at_ms), "it is caught up", 30)
    reserve(host.app, 0, written=False)
    assert host.drain(lines(5, 20)).finished
    assert recorder.text() == lines(25)
    assert recorder.last.lost_bytes == 0, "all that was written was delivered"


def test_nuls_that_are_packed_with_a_file_are_no_loss(host: Host, recorder: Recorder) -> None:
    """As where a file is rotated and packed though its writer was killed."""
    host.append(lines(1, 10_000))
    rotated = host.logs / "app.log.1"
    rotated.write_bytes(lines(100))
    os.truncate(rotated, 1 << 20)
    assert host.drain().finished
    with rotated.open("r+b") as file:
        file.seek(100 * LINE)
        file.write(lines(10, 100))
    (host.logs / "app.log.1.gz").write_bytes(gzip.compress(rotated.read_bytes()))
    rotated.unlink()
    assert host.drain().finished
    assert recorder.sent() == (lines(110) + lines(1, 10_000)).splitlines(keepends=True)
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


@pytest.mark.parametrize(
    ("content", "start", "end"),
    [
        (b"", 0, 0),
        (b"abc", 0, 3),
        (b"abc\0\0", 0, 3),
        (b"\0\0", 0, 0),
        (b"abc\0\0", 4, 4),
        (b"abc\0\0", 9, 5),
        (b"a\0b\0", 0, 3),
        (b"a" + b"\0" * 300_000 + b"b" + b"\0" * 300_000, 0, 300_002),
        (b"a" * 70_000 + b"\0" * 70_000, 1000, 70_000),
    ],
)
def test_where_content_ends(tmp_path: Path, content: bytes, start: int, end: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        assert content_end(file.fileno(), len(content), start) == end


def test_a_head_never_holds_nuls_in_whose_place_a_line_was_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next look would take the file for another one."""
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    read = examination.read_at

    def read_before_it_is_written(descriptor: int, offset: int, count: int) -> bytes:
        found = read(descriptor, offset, count)
        if count == HEAD_BYTES:
            with path.open("r+b") as file:
                file.write(lines(2))
        return found

    monkeypatch.setattr(examination, "read_at", read_before_it_is_written)
    with path.open("rb") as file:
        look = examination.examine(file.fileno(), FilePosition())
    assert (look.size, look.found.head) == (2 * LINE, lines(2))


def test_a_hole_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"line\n")
    os.truncate(path, 1 << 40)
    with path.open("rb") as file:
        assert content_end(file.fileno(), 1 << 40, 0) == 5
