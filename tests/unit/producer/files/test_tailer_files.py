"""Rotation, truncation, deletion, inode reuse: files keep being who they are.

Each test is named after the fault.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark.process.file_identity import FileIdentity, identify
from hourmark_producer.files import waits


def narrow(host: Host) -> None:
    """Only the live name matches, as with most people's configuration."""
    host.settings["sources"] = [TailedSource(name="app", paths=[str(host.app)])]


def unborn(host: Host) -> None:
    """As on file systems that keep no birth time."""
    host.identify = lambda descriptor: identify(descriptor)._replace(birth_ns=0)


def generations(recorder: Recorder) -> dict[int, bytes]:
    """What there was of the one file."""
    assert len({file_id for file_id, _ in recorder.contents()}) == 1
    return {generation: content for (_, generation), content in recorder.contents().items()}


def rename(path: Path, name: str) -> Path:
    return path.rename(path.with_name(name))


def test_birth_times_are_known_here(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with (tmp_path / "file").open() as file:
        found = identify(file.fileno())
    status = (tmp_path / "file").stat()
    assert (found.device, found.inode) == (status.st_dev, status.st_ino)
    assert found.birth_ns == 0 or abs(found.birth_ns - status.st_mtime_ns) < 10_000_000_000


def test_rotation_while_running_loses_and_doubles_nothing(host: Host, recorder: Recorder) -> None:
    narrow(host)
    with host.running(lines(10)):
        recorder.wait_stored(1)
        old = rename(host.app, "app.log.1")
        host.append(lines(10, 10), old)  # the writer has not noticed yet
        host.append(lines(10, 20))
        recorder.wait_text(lines(30))
        host.append(lines(10, 30), old)
        recorder.wait_text(lines(40))
    contents = recorder.contents()
    assert sorted(contents.values()) == sorted([lines(20) + lines(10, 30), lines(10, 20)])
    assert {one.range.path for one in recorder.received} == {str(host.app)}, (
        "a range names the file as it was found"
    )


def test_rotation_while_the_agent_is_down_does_not_lose_the_rest_of_the_old_file(
    host: Host, recorder: Recorder
) -> None:
    narrow(host)
    host.drain(lines(10))
    host.append(lines(10, 10))
    rename(rename(host.app, "app.log.1"), "old-app.7")
    summary = host.drain(lines(10, 20))
    assert recorder.files() == sorted([lines(20), lines(10, 20)])
    assert summary.lost_bytes == 0


def test_a_reused_inode_is_not_skipped_in_silence(host: Host, recorder: Recorder) -> None:
    """Birth times tell; here the second file is longer than what was read of the first."""
    births = iter([111, 111, 222])
    host.identify = lambda descriptor: identify(descriptor)._replace(birth_ns=next(births))
    host.drain(lines(10))
    host.drain(lines(2, 10))
    host.app.write_bytes(lines(50, 1000))
    host.drain()
    assert recorder.files() == sorted([lines(12), lines(50, 1000)])
    assert len({one.range.file_id for one in recorder.received}) == 2


def test_a_reused_inode_without_birth_times_is_told_by_its_content(
    host: Host, recorder: Recorder
) -> None:
    unborn(host)
    host.drain(lines(10))
    host.app.write_bytes(lines(50, 1000))  # longer than the position
    host.drain()
    assert recorder.contents()[recorder.received[0].range.file_id, 1] == lines(50, 1000)


def test_without_birth_times_a_deleted_file_and_its_successor_never_share_ids(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "DELETED_LINGER_S", 0.0)
    fixed = FileIdentity(1, 1, 0)
    host.identify = lambda _: fixed
    with host.running(lines(10)) as tailer:
        recorder.wait_stored(1)
        host.app.unlink()
        wait_for(
            lambda: all(file.descriptor is None for file in tailer.files),
            "the deleted file is let go",
        )
        host.append(lines(12))
        recorder.wait_stored(2)
    assert [(one.range.generation, one.range.start, one.body) for one in recorder.received] == [
        (0, 0, lines(10)),
        (1, 0, lines(12)),
    ]


def test_truncation_is_a_new_generation_and_what_it_destroyed_is_counted(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    with host.running(lines(10)):
        recorder.wait_stored(1)
        recorder.behaviour = lambda _: 503
        host.append(lines(10, 10))
        recorder.wait_received(2)
        host.append(b"never read\n")
        wait_for(
            lambda: recorder.last.pending_bytes == len(lines(10)) + 11, "the last line was seen"
        )
        host.app.write_bytes(b"new\n")
        wait_for(lambda: recorder.last.pending_bytes == len(lines(10)), "the truncation was seen")
        recorder.behaviour = lambda _: 200
        wait_for(lambda: recorder.last.lost_bytes == 11, "the loss is reported")
        wait_for(lambda: recorder.received[-1].range.generation == 1, "the new generation")
    assert generations(recorder) == {0: lines(20), 1: b"new\n"}
    assert "11 bytes" in caplog.text and str(host.app) in caplog.text
    assert host.drain().lost_bytes == 11, "losses are durable"


def test_truncation_while_down(host: Host, recorder: Recorder) -> None:
    host.drain(lines(10))
    host.app.write_bytes(lines(3, 100))
    host.drain()
    assert generations(recorder) == {0: lines(10), 1: lines(3, 100)}


def test_truncated_and_grown_to_the_same_size_between_two_scans(
    host: Host, recorder: Recorder
) -> None:
    with host.running(lines(10)):
        recorder.wait_stored(1)
        host.app.write_bytes(lines(10, 5000))
        recorder.wait_stored(2)
    assert generations(recorder) == {0: lines(10), 1: lines(10, 5000)}


def test_copytruncate_neither_doubles_nor_stops(host: Host, recorder: Recorder) -> None:
    narrow(host)  # as documented: the copy must not match
    with host.running(lines(10)):
        recorder.wait_stored(1)
        shutil.copy(host.app, host.logs / "app.log.1")
        os.truncate(host.app, 0)
        host.append(lines(3, 10))
        recorder.wait_stored(2)
    assert recorder.files() == sorted([lines(10), lines(3, 10)])


def test_a_retry_is_the_same_though_the_file_was_truncated_meanwhile(
    host: Host, recorder: Recorder
) -> None:
    recorder.behaviour = lambda one: 503 if one.number == 0 else 200
    host.settings["backoff_max_seconds"] = 0.2
    with host.running(lines(10)):
        recorder.wait_received(1)
        host.app.write_bytes(b"")
        recorder.wait_stored(1)
    assert recorder.text() == lines(10)


def test_a_deleted_file_is_read_to_its_end_and_then_frees_the_disk(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "DELETED_LINGER_S", 0.05)
    recorder.behaviour = lambda one: 503 if one.number < 3 else 200
    with host.running(lines(50_000)) as tailer:
        recorder.wait_received(1)
        host.app.unlink()
        recorder.wait_text(lines(50_000))
        wait_for(lambda: len(tailer.files) == 0, "it is let go")
    assert recorder.text() == lines(50_000)


def test_a_deleted_files_unterminated_end_is_counted_as_lost(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "DELETED_LINGER_S", 0.0)
    with host.running(b"whole\nhalf"):
        recorder.wait_stored(1)
        host.app.unlink()
        wait_for(lambda: recorder.last.lost_bytes == 4, "the loss is reported")
        wait_for(lambda: recorder.last.pending_bytes == 0, "nothing is pending")


def test_deleted_while_down_with_bytes_known_unread(host: Host, recorder: Recorder) -> None:
    recorder.behaviour = lambda _: 503
    host.settings["range_bytes"] = 1024
    with host.running(lines(100)):
        recorder.wait_received(1)
    host.app.unlink()
    recorder.behaviour = lambda _: 200
    summary = host.drain()
    sent = recorder.text()
    assert sent == lines(100)[: len(sent)] and sent, (
        "the spooled range arrives though its file is gone"
    )
    assert summary.lost_bytes == len(lines(100)) - len(sent)
    assert host.drain().lost_bytes == summary.lost_bytes, "counted once"


def test_a_file_that_comes_back_is_read_on(host: Host, recorder: Recorder) -> None:
    host.drain(lines(10))
    away = host.state.parent / "elsewhere"
    host.app.rename(away)
    host.drain()
    host.append(lines(10, 10), away)
    away.rename(host.app)
    host.drain()
    assert recorder.text() == lines(20)


def test_a_device_number_that_changes_with_a_reboot_does_not_make_the_files_new(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(10))
    db = sqlite3.connect(host.state / "checkpoint.sqlite")
    db.execute("UPDATE files SET device = device + 7")
    db.commit()
    db.close()
    host.drain(lines(10, 10))
    assert recorder.text() == lines(20)
    assert len({one.range.file_id for one in recorder.received}) == 1


def test_lines_are_not_skipped_when_a_file_is_rotated_while_acks_are_slow(
    host: Host, recorder: Recorder
) -> None:
    narrow(host)
    recorder.behaviour = lambda one: 503 if one.number % 3 else 200
    host.settings["range_bytes"] = 1024
    with host.running():
        for n in range(5):
            host.append(lines(200, n * 200))
            wait_for(
                lambda n=n: len({one.range.file_id for one in list(recorder.received)}) > n,  # type: ignore[misc]
                "the file was found",
            )
            rename(host.app, f"app.log.{n}")
        recorder.wait_text(lines(1000))
    assert recorder.files() == sorted(lines(200, n * 200) for n in range(5))


def test_a_rotated_file_is_let_go_once_it_is_idle_and_read_on_should_it_match_again(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "UNMATCHED_LINGER_S", 0.0)
    narrow(host)
    with host.running(lines(10)) as tailer:
        recorder.wait_stored(1)
        old = rename(host.app, "old")
        wait_for(lambda: all(file.descriptor is None for file in tailer.files), "let go")
        host.append(lines(10, 10), old)
        rename(old, "app.log")
        recorder.wait_stored(2)
    assert recorder.text() == lines(20)


@pytest.mark.parametrize("pattern", ["**/*.log", "*/deep/x?.log", "[a]/**/x1.log", "a/deep/x1.log"])
def test_globs(host: Host, recorder: Recorder, pattern: str) -> None:
    (host.logs / "a" / "deep").mkdir(parents=True)
    host.append(b"one\n", host.logs / "a" / "deep" / "x1.log")
    host.append(b"hidden\n", host.logs / "a" / "deep" / ".x2.log")
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/{pattern}"])]
    host.drain()
    assert recorder.text() == b"one\n"


Make = Callable[[Path], None]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["fifo", "folder"])
def test_what_is_no_regular_file_is_left_alone(host: Host, make: Make) -> None:
    make(host.app)
    assert host.drain().files == 0
