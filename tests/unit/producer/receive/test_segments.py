"""Segments: what is durable, what has room, and what a kill leaves of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.config.groups import TailedSource
from hourmark_producer.receive.segments import SegmentNotSynced, SegmentStore


def logs(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.log"))]


def test_a_long_segment_is_sealed_at_a_line_end_and_the_next_begins(tmp_path: Path) -> None:
    segments = SegmentStore(tmp_path, 8 * 100)
    segments.append(b"x" * 120)
    segments.append(b"y" * 10 + b"\n")
    segments.append(b"z\n")
    assert logs(tmp_path) == [b"x" * 120 + b"y" * 10 + b"\n", b"z\n"]
    assert (segments.complete_size("0000000001"), segments.complete_size("0000000002")) == (
        131,
        None,
    )


def test_a_full_spool_has_room_again_when_a_segment_is_removed(tmp_path: Path) -> None:
    segments = SegmentStore(tmp_path, 800)
    for _ in range(8):
        segments.append(b"x" * 99 + b"\n")
    assert segments.is_full
    segments.mark_done("0000000001")
    assert segments.is_full, "it is there still"
    segments.remove("0000000001")
    assert not segments.is_full and segments.size == 700


def test_a_run_goes_on_with_a_segment_of_its_own(tmp_path: Path) -> None:
    first = SegmentStore(tmp_path, 1 << 20)
    first.append(b"a\n")
    second = SegmentStore(tmp_path, 1 << 20)
    second.append(b"b\n")
    assert logs(tmp_path) == [b"a\n", b"b\n"]
    assert second.complete_size("0000000001") == 2


def test_what_a_full_disk_did_not_take_is_written_first_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments, room = SegmentStore(tmp_path, 1 << 20), [3, 0]
    write = os.write

    def short(descriptor: int, content: bytes) -> int:
        if not room:
            return write(descriptor, content)
        if not (some := room.pop(0)):
            raise OSError(errno.ENOSPC, "no space left")
        return write(descriptor, content[:some])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="no space"):
        segments.append(b"one\ntwo\n")
    assert segments.is_full and segments.unwritten_bytes == 5
    segments.append(b"three\n")
    assert logs(tmp_path) == [b"one\ntwo\nthree\n"] and not segments.is_full


def test_a_sync_that_failed_is_never_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(SegmentNotSynced, match="cannot be synced: input/output error"):
        SegmentStore(tmp_path, 1 << 20).append(b"a\n")


@pytest.fixture
def spool(host: Host) -> Path:
    """The folder of the source `app`, which receives."""
    host.settings["sources"] = [TailedSource(name="app", input="syslog+tcp://127.0.0.1:0")]
    return host.state / "spool" / "app"


def test_the_torn_end_of_a_segment_is_cut_off_and_no_loss(
    host: Host, spool: Path, recorder: Recorder
) -> None:
    spool.mkdir(parents=True)
    segment = spool / "0000000001.log"
    segment.write_bytes(lines(10) + b"half a li")
    recorder.behaviour = lambda _: 503
    with host.running():
        recorder.wait_received(1)
    with segment.open("ab") as file:  # as a kill within a write leaves it: seen by a look, or not
        file.write(b"ne, torn")
    recorder.behaviour = lambda _: 200
    assert host.drain().lost_bytes == 0
    assert recorder.text() == lines(10)
    assert recorder.last.unknown_losses == 0
    assert not list(spool.glob("*.log")), "it is acknowledged, so it is removed"


def test_a_torn_end_that_looks_had_seen_was_never_there(
    host: Host, spool: Path, recorder: Recorder
) -> None:
    from tests.support.waiting import wait_for

    with host.running() as tailer:
        (spool / "0000000001.log").write_bytes(lines(10) + b"half a line")
        recorder.wait_text(lines(10))
        scans = tailer.scanner.scans
        wait_for(lambda: tailer.scanner.scans > scans + 2, "it is seen, and written down")
    (spool / "0000000001.log").write_bytes(lines(10))  # the power cut
    summary = host.drain()
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)
    assert (
        recorder.text() == lines(10)
        and set(dict(recorder.contents()))
        and not list(spool.glob("*.log"))
    )


def test_a_segment_that_was_done_when_the_kill_came_is_not_sent_again(
    host: Host, spool: Path, recorder: Recorder
) -> None:
    with host.running():
        (spool / "0000000001.log").write_bytes(lines(10))
        recorder.wait_text(lines(10))
    (spool / "0000000001.log").rename(spool / "0000000001.done")
    host.drain()
    assert recorder.text() == lines(10) and recorder.last.unknown_losses == 0
    assert not [path for path in spool.iterdir() if path.name != "open"]


def test_lines_that_are_all_alike_are_no_reason_for_doubt(
    host: Host, spool: Path, recorder: Recorder
) -> None:
    from tests.support.waiting import wait_for

    beat = b"heartbeat ok\n"
    with host.running():
        (spool / "0000000001.log").write_bytes(beat * 100)
        recorder.wait_text(beat * 100)
        with (spool / "0000000001.log").open("ab") as file:
            file.write(beat * 100)
        recorder.wait_text(beat * 200)
        wait_for(lambda: recorder.last.pending_bytes == 0, "it is reported")
    assert recorder.last.unknown_losses == 0
