"""What was lost is known as far as it had been seen; what cannot be known is said to be unknown,
and never 0.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark_producer.checkpoint.database import save_account
from hourmark_producer.counters import Loss
from hourmark_producer.files.examination import Examination, examine
from hourmark_producer.files.tracked_file import FilePosition
from hourmark_producer.tailer import Tailer

LINE = len(lines(1))


def overwrite(path: Path, content: bytes) -> None:
    """As `>` does, and at once: no look falls between truncation and the new content."""
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(content)


def said(recorder: Recorder) -> tuple[int, int]:
    """Lost and unknown, of the last report."""
    return recorder.last.lost_bytes, recorder.last.unknown_losses


def occasions(host: Host) -> list[Loss]:
    with host.tailer() as (_, checkpoint):
        return checkpoint.recent_losses()


@contextmanager
def in_an_outage(host: Host, recorder: Recorder, before: bytes) -> Iterator[Tailer]:
    """A tailer at work that has read `before`, and from then on gets no range acknowledged, until
    the end.
    """
    with host.running(before) as tailer:
        recorder.wait_text(before)
        recorder.behaviour = lambda _: 503
        yield tailer
        recorder.behaviour = lambda _: 200
        wait_for(lambda: recorder.last.pending_bytes == 0, "all is settled")


def look(tailer: Tailer) -> None:
    """Let two scans pass."""
    scans = tailer.scanner.scans
    wait_for(lambda: tailer.scanner.scans > scans + 2, "two scans")


def test_a_truncation_followed_by_fast_regrowth_counts_nothing_that_was_read(
    host: Host, recorder: Recorder
) -> None:
    with host.running(lines(40)):
        recorder.wait_text(lines(40))
        overwrite(host.app, lines(4000, 1000))
        recorder.wait_text(lines(4040))
        wait_for(lambda: recorder.last.pending_bytes == 0, "it is read")
    assert said(recorder) == (0, 1), (
        "nothing seen was lost; what may have been written before the truncation is unknown"
    )


def test_what_grew_after_a_truncation_in_an_outage_is_not_counted(
    host: Host, recorder: Recorder
) -> None:
    with in_an_outage(host, recorder, lines(5)) as tailer:
        host.append(lines(50, 5))
        wait_for(lambda: len(recorder.received) > 1, "it is on its way")
        os.truncate(host.app, 0)
        look(tailer)
        host.append(lines(5000, 100))
        look(tailer)
    assert said(recorder) == (0, 1)


def test_two_truncations_in_one_outage_are_two_losses(host: Host, recorder: Recorder) -> None:
    with in_an_outage(host, recorder, lines(5)) as tailer:
        host.append(lines(50, 5))
        wait_for(lambda: len(recorder.received) > 1, "it is on its way")
        os.truncate(host.app, 0)
        look(tailer)
        host.append(lines(45, 100))
        look(tailer)
        os.truncate(host.app, 0)
        look(tailer)
        host.append(lines(5, 200))
        look(tailer)
    assert said(recorder) == (45 * LINE, 2)


def test_a_file_that_regrew_beyond_its_old_size_before_it_was_read(
    host: Host, recorder: Recorder
) -> None:
    recorder.report_status = 503  # so nothing is read
    with host.running(lines(1000)) as tailer:
        look(tailer)
        overwrite(host.app, lines(1100, 5000))
        look(tailer)
        recorder.report_status = 200
        recorder.wait_text(lines(1100))
        wait_for(lambda: bool(recorder.reports) and recorder.last.pending_bytes == 0, "it is read")
        look(tailer)
    assert said(recorder) == (1000 * LINE, 1)


def test_lines_that_are_all_alike_are_unknown_as_no_truncation_could_be_told(
    host: Host, recorder: Recorder
) -> None:
    beat = b"heartbeat ok\n"
    with host.running(beat * 100):
        recorder.wait_text(beat * 100)
        overwrite(host.app, beat * 150)
        recorder.wait_text(beat * 150)
        wait_for(lambda: recorder.last.unknown_losses == 1, "it is said")
        host.append(beat * 50)
        recorder.wait_text(beat * 200)
    host.drain(beat)
    assert said(recorder) == (0, 1), "said once"


def test_a_scan_that_saves_an_older_position_does_not_undo_that_it_was_said(
    host: Host, recorder: Recorder
) -> None:
    beat = b"heartbeat ok\n"
    host.drain(beat * 100)
    with host.tailer() as (_, checkpoint):
        (before,) = checkpoint.files()
    host.drain(beat * 50)
    with host.tailer() as (_, checkpoint):
        older = dataclasses.replace(before.progress.position, doubted=False)
        checkpoint.commit([save_account(before.file_id, older)])
    assert host.drain(beat).unknown_losses == 1, "said once"


def test_bytes_known_before_a_stop_and_truncated_meanwhile_are_lost(
    host: Host, recorder: Recorder
) -> None:
    with host.running(lines(10)) as tailer:
        recorder.wait_text(lines(10))
        recorder.behaviour = lambda _: 503
        host.append(lines(10, 10))
        wait_for(lambda: len(recorder.received) > 1, "it is on its way")
        host.append(lines(10_000, 20))
        look(tailer)
        wait_for(lambda: recorder.last.pending_bytes == 10_010 * LINE, "it is known")
    os.truncate(host.app, 0)
    recorder.behaviour = lambda _: 200
    assert host.drain().lost_bytes == 10_000 * LINE


def test_a_shrink_seen_before_a_stop_is_not_forgotten(host: Host, recorder: Recorder) -> None:
    with host.running(lines(10)) as tailer:
        recorder.wait_text(lines(10))
        recorder.behaviour = lambda _: 503
        host.append(lines(10, 10))
        wait_for(lambda: len(recorder.received) > 1, "it is on its way")
        for start in (20, 50):
            os.truncate(host.app, 0)
            look(tailer)
            host.append(lines(30, start))
            look(tailer)
    recorder.behaviour = lambda _: 200
    summary = host.drain()
    assert (summary.lost_bytes, summary.unknown_losses) == (30 * LINE, 2)
    assert host.drain().unknown_losses == 2, "counted once"


def test_a_file_removed_while_the_agent_is_down_is_unknown_loss(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    host.once(lines(100))
    host.append(lines(5000, 100))
    host.app.unlink()
    with caplog.at_level(logging.WARNING):
        summary = host.drain()
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 1)
    assert str(host.app) in caplog.text
    (loss,) = occasions(host)
    assert (loss.source, loss.path, loss.unknown) == ("app", str(host.app), 1) and loss.at_ms > 0


def test_a_file_removed_after_a_goodbye_is_no_loss_if_it_was_delivered(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(100))
    host.app.unlink()
    summary = host.drain()
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)
    assert occasions(host) == []
    assert said(recorder) == (0, 0)


def test_a_file_removed_after_a_goodbye_whose_inode_is_used_again_is_no_loss(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(100))
    host.app.unlink()
    host.drain(lines(50, 1000))
    assert said(recorder) == (0, 0)
    assert sorted(recorder.text().splitlines()) == (lines(100) + lines(50, 1000)).splitlines()


def test_a_file_removed_after_a_goodbye_is_a_loss_of_what_was_not_delivered(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(100) + b"half")
    host.app.unlink()
    assert host.drain().unknown_losses == 1, "its end was seen, and is gone"


def test_a_run_after_a_goodbye_ends_what_the_goodbye_said(host: Host, recorder: Recorder) -> None:
    host.drain(lines(100))
    host.once(lines(100, 100))
    host.app.unlink()
    assert host.drain().unknown_losses == 1


def test_a_file_removed_after_a_goodbye_that_was_packed_unreadably_is_unknown_loss(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(100))
    host.append(lines(50, 100))
    host.app.rename(host.logs / "app.log.1.lz4")
    (host.logs / "other").write_bytes(b"packed")
    (host.logs / "other").replace(host.logs / "app.log.1.lz4")
    assert host.drain().unknown_losses == 1


@pytest.mark.parametrize(("idle_s", "unknown"), [(0.0, 0), (600.0, 1)])
def test_an_idle_rotated_file_removed_while_the_tailer_is_down_is_no_loss(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, idle_s: float, unknown: int
) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.UNMATCHED_LINGER_S", idle_s)
    host.once(lines(100))
    rotated = host.logs / "app.log.1"
    host.app.rename(rotated)
    host.once(lines(50, 100))
    rotated.unlink()
    assert host.drain().unknown_losses == unknown
    host.app.unlink()
    assert host.once().unknown_losses == unknown, "the file of a goodbye"


def test_a_deleted_file_that_was_held_open_leaves_nothing_unknown(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.DELETED_LINGER_S", 0.0)
    with host.running(lines(10) + b"half") as tailer:
        recorder.wait_stored(1)
        host.app.unlink()
        wait_for(lambda: len(tailer.files) == 0, "it is let go")
        wait_for(lambda: recorder.last.lost_bytes == 4, "its end is lost")
    assert said(recorder) == (4, 0)


def test_what_was_truncated_between_a_look_and_the_first_read_comes_once(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[bool]()

    def then_truncated(descriptor: int, position: FilePosition) -> Examination:
        look = examine(descriptor, position)
        if not done:
            done.append(True)
            overwrite(host.app, lines(200, 1000))
        return look

    monkeypatch.setattr("hourmark_producer.send.file_examiner.examine", then_truncated)
    summary = host.drain(lines(100))
    assert recorder.text() == lines(200, 1000)
    assert summary.unknown_losses == 1
