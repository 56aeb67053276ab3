"""Files that were made and packed while nobody looked: read from the archive, once; or their loss
is unknown, and said to be.
"""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.PACKING_S", 0.3)


def packed(host: Host, name: str, content: bytes, *, mtime_s: float | None = None) -> Path:
    """As gzip leaves it: with the time of its plain file's last write."""
    path = host.logs / name
    path.write_bytes(gzip.compress(content))
    if mtime_s is not None:
        os.utime(path, (mtime_s, mtime_s))
    return path


def sent(recorder: Recorder) -> list[bytes]:
    return sorted(b"".join(one.body for one in recorder.stored).splitlines(keepends=True))


def distinct(*contents: bytes) -> list[bytes]:
    return sorted(line for content in contents for line in content.splitlines(keepends=True))


def test_a_file_that_was_made_and_packed_in_one_outage_is_read_once(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(100))
    host.app.rename(host.logs / "app.log.2")
    packed(host, "app.log.1.gz", lines(5000, 100))
    host.append(lines(10, 9000))
    summary = host.drain()
    assert sent(recorder) == distinct(lines(5100), lines(10, 9000))
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)
    (host.logs / "app.log.1.gz").rename(host.logs / "app.log.2.gz")
    host.drain()
    assert sent(recorder) == distinct(lines(5100), lines(10, 9000)), (
        "nor at the next start, under its next name"
    )


def test_beside_one_that_was_known_and_packed(host: Host, recorder: Recorder) -> None:
    host.drain(lines(100))
    host.append(lines(7, 100))
    packed(host, "app.log.2.gz", host.app.read_bytes())
    host.app.unlink()
    packed(host, "app.log.1.gz", lines(50, 1000))
    host.append(lines(3, 5000))
    summary = host.drain()
    assert sent(recorder) == distinct(lines(107), lines(50, 1000), lines(3, 5000))
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_archives_that_were_there_first_are_old(host: Host, recorder: Recorder) -> None:
    packed(host, "app.log.1.gz", lines(50, 1000))
    host.drain(lines(100))
    assert sent(recorder) == distinct(lines(100))


def test_one_whose_content_is_from_before_the_latest_look_is_old(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(100))
    packed(host, "app.log.1.gz", lines(50, 1000), mtime_s=time.time() - 3600)
    summary = host.drain()
    assert sent(recorder) == distinct(lines(100))
    assert summary.unknown_losses == 0


def test_what_was_read_and_is_gone_is_known_when_it_comes_back_packed(
    host: Host, recorder: Recorder
) -> None:
    host.once(lines(100))
    content = host.app.read_bytes()
    host.app.unlink()
    host.append(lines(100, 1000))
    host.drain()
    host.drain()
    packed(host, "app.log.1.gz", content)
    summary = host.drain()
    assert sent(recorder) == distinct(lines(100), lines(100, 1000))
    assert summary.unknown_losses == 1, "only that it was deleted while nobody held it open"


def test_what_was_unread_of_a_file_that_is_over_is_read_where_it_is_packed(
    host: Host, recorder: Recorder
) -> None:
    """It was truncated under another name, so that its copy was not looked for."""
    host.drain(lines(100))
    packed(host, "app.log.1.gz", lines(120))
    host.app.rename(host.logs / "old.log")
    os.truncate(host.logs / "old.log", 0)
    summary = host.drain()
    assert sent(recorder) == distinct(lines(120))
    assert summary.unknown_losses == 1, "what was written between the copy and the truncation"


def test_while_it_runs_what_it_has_read_is_not_read_again(host: Host, recorder: Recorder) -> None:
    with host.running(lines(1000)) as tailer:
        recorder.wait_text(lines(1000))
        for number in range(3):
            packed(host, f"app.log.{number}.gz", host.app.read_bytes())
            host.app.unlink()
            host.append(lines(1000, 1000 * (number + 1)))
            recorder.wait_size(len(lines(1000)) * (number + 2))
        wait_for(lambda: not any(file.suspected for file in tailer.files), "they are told")
        recorder.reports.clear()
        wait_for(lambda: bool(recorder.reports), "a report")
        wait_for(lambda: recorder.last.caught_up_at_ms is not None, "caught up")
    assert sent(recorder) == distinct(lines(4000))


def test_killed_while_it_is_read(host: Host, recorder: Recorder) -> None:
    host.drain(lines(100))
    packed(host, "app.log.1.gz", lines(5000, 100))
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda one: 503 if one.number > 20 else 200
    with host.running():
        recorder.wait_received(23)
    recorder.behaviour = lambda _: 200
    (host.logs / "app.log.1.gz").rename(host.logs / "app.log.2.gz")
    summary = host.drain()
    assert recorder.files() == sorted([lines(100), lines(5000, 100)])
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_one_still_being_written_is_waited_for(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.PACKING_S", 30.0)
    host.drain(lines(100))
    path = packed(host, "app.log.1.gz", lines(20_000, 100))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    recorder.reports.clear()
    with host.running() as tailer:
        wait_for(lambda: tailer.scanner.scans > 12, "it is seen")
        assert all(
            source.caught_up_at_ms is None
            for report in recorder.reports
            for source in report.sources
        )
        with path.open("ab") as file:
            file.write(content[len(content) // 2 :])
        recorder.wait_text(lines(20_100))
        wait_for(lambda: recorder.last.caught_up_at_ms is not None, "caught up")


def test_a_damaged_one_is_unknown_loss(host: Host, recorder: Recorder) -> None:
    host.drain(lines(100))
    path = packed(host, "app.log.1.gz", lines(5000, 100))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(content)
    summary = host.drain()
    assert sent(recorder) == distinct(lines(100))
    assert summary.unknown_losses == 1
    assert host.drain().unknown_losses == 1, "it is said once"


def test_a_damaged_one_is_not_what_is_unknown_of_a_file_that_vanished_before(
    host: Host, recorder: Recorder
) -> None:
    packed(host, "app.log.1.gz", lines(9, 500))
    host.once(lines(100))
    host.app.unlink()
    with host.running():
        wait_for(lambda: recorder.last.unknown_losses == 1, "the file is missed")
        damaged = packed(host, "other", lines(5000, 100))
        damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
        damaged.rename(host.logs / "app.log.0.gz")
        wait_for(lambda: recorder.last.unknown_losses == 2, "what is in it is unknown")


def test_one_that_may_be_what_was_read_is_unknown_loss(host: Host, recorder: Recorder) -> None:
    host.drain(b"=== started ===\n")
    packed(host, "app.log.1.gz", b"=== started ===\n" + lines(10))
    summary = host.drain()
    assert sent(recorder) == distinct(b"=== started ===\n")
    assert summary.unknown_losses == 1


def test_what_is_excluded_stays_so_once_it_is_packed(host: Host, recorder: Recorder) -> None:
    host.settings["sources"][0].exclude[:] = ["*.debug"]
    host.drain(lines(100))
    packed(host, "app.log.debug.gz", lines(50, 1000))
    packed(host, "app.log.debug-20261124.gz", lines(50, 2000))
    host.drain()
    assert sent(recorder) == distinct(lines(100))


@pytest.mark.parametrize("birth_ns", [None, 0])
def test_a_last_line_without_its_end_is_lost_and_counted(
    host: Host, recorder: Recorder, birth_ns: int | None
) -> None:
    from hourmark.process.file_identity import identify

    if birth_ns is not None:
        host.identify = lambda descriptor: identify(descriptor)._replace(birth_ns=0)
    host.drain(lines(100))
    packed(host, "app.log.1.gz", lines(50, 1000) + b"half")
    summary = host.drain()
    assert sent(recorder) == distinct(lines(100), lines(50, 1000))
    assert (summary.lost_bytes, summary.unknown_losses) == (4, 0)


def test_a_file_that_has_just_begun_says_nothing_of_a_packed_one_that_begins_alike(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(100))
    host.app.rename(host.logs / "app.log.2")
    packed(host, "app.log.1.gz", lines(50, 1000))
    summary = host.drain(lines(1, 1000)[:8])
    assert sent(recorder) == distinct(lines(100), lines(50, 1000))
    assert summary.unknown_losses == 0


def test_one_that_was_last_seen_empty_leaves_nothing_unknown(
    host: Host, recorder: Recorder
) -> None:
    host.drain(b"")
    packed(host, "app.log.2.gz", lines(100))
    packed(host, "app.log.1.gz", lines(50, 1000))
    host.app.unlink()
    summary = host.drain()
    assert sent(recorder) == distinct(lines(100), lines(50, 1000))
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_what_was_deleted_after_it_was_last_seen_empty_stays_unknown(host: Host) -> None:
    host.append(b"", host.logs / "app.log.2")
    host.drain(b"")
    packed(host, "app.log.1.gz", lines(50, 1000))
    host.app.unlink()
    (host.logs / "app.log.2").unlink()
    assert host.drain().unknown_losses == 1, "one of two is in the archive"


@pytest.mark.parametrize("was_seen", [False, True])
def test_an_empty_file_that_was_packed_leaves_nothing_unknown(
    host: Host, recorder: Recorder, was_seen: bool
) -> None:
    host.drain(b"")
    path = packed(host, "app.log.1.gz", b"", mtime_s=host.app.stat().st_mtime)
    if was_seen:
        host.drain()
    host.app.unlink()
    assert host.drain().unknown_losses == 0
    os.utime(path, (0, 0))
    host.append(b"")
    host.drain()
    host.app.unlink()
    assert host.drain().unknown_losses == 1, "one that is older than the file is not it"
    assert sent(recorder) == []


@pytest.mark.parametrize("size", [30, 300])
def test_a_line_without_its_end_that_was_packed_is_lost_once(
    host: Host, recorder: Recorder, size: int
) -> None:
    """All that its file held: nothing of it was read by which its archive could be known."""
    half = lines(20)[:size].replace(b"\n", b" ")
    with host.running(lines(100)) as tailer:
        recorder.wait_text(lines(100))
        host.app.rename(host.logs / "app.log.1")
        host.append(half)
        wait_for(
            lambda: len(tailer.files) == 2 and all(file.is_read for file in tailer.files),
            "both are read",
        )
    host.app.unlink()
    for number in range(4):
        for archive in host.logs.glob("app.log-*.gz"):
            archive.unlink()
        packed(host, f"app.log-{number}.gz", half)  # it appears again and again
        summary = host.drain()
        assert (summary.lost_bytes, summary.unknown_losses) == (size, 0)


@pytest.mark.parametrize("pattern", ["app.log*", "app.log"])
def test_a_stop_before_it_was_looked_into(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/{pattern}"])]
    host.drain(lines(100))
    host.app.rename(host.logs / "app.log.2")
    path = packed(host, "app.log.1.gz", lines(5000, 100))
    monkeypatch.setattr("hourmark_producer.checkpoint.archives.EVERY_S", 0.0)
    monkeypatch.setattr("hourmark_producer.watch.packed_files._LATER_MS", 0)
    monkeypatch.setattr("hourmark_producer.files.waits.COMPRESSED_SCANS", 1_000_000)
    wait_for(lambda: time.time() > path.stat().st_mtime + 0.1, "the next look is later")
    with host.running() as tailer:
        wait_for(lambda: tailer.scanner.scans > 5, "it is seen")
    monkeypatch.setattr("hourmark_producer.files.waits.COMPRESSED_SCANS", 3)
    summary = host.drain()
    assert sent(recorder) == distinct(lines(5100))
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_of_several_files_that_were_last_seen_empty_each_is_held_by_one(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive keeps its file's time, so a file is in none that is older than itself."""
    monkeypatch.setattr("hourmark_producer.watch.packed_files._LATER_MS", 0)
    names = [f"app.log.{number}" for number in range(9, 0, -1)]
    with host.running() as tailer:
        for name in names:
            (path := host.logs / name).touch()
            wait_for(
                lambda: time.time_ns() > path.stat().st_mtime_ns + 20_000_000,
                "it is older than the next",
            )
        wait_for(lambda: len(tailer.files) == len(names), "all are seen")
    for name in names:
        path = host.logs / name
        written_ns = path.stat().st_mtime_ns
        packed(host, f"{name}.gz", b"")
        os.utime(host.logs / f"{name}.gz", ns=(written_ns, written_ns))
        path.unlink()
    assert host.drain().unknown_losses == 0
    assert sent(recorder) == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cut off", "damaged", "too little is known"])
def test_one_that_cannot_be_told_and_a_file_that_was_last_seen_empty_do_not_wait_for_each_other(
    host: Host, recorder: Recorder, fault: str
) -> None:
    host.drain(b"")
    host.append(b"=== started ===\n", host.logs / "app.log.2")
    host.drain()
    path = packed(host, "app.log.1.gz", b"=== started ===\n" + lines(100))
    if fault != "too little is known":
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if fault == "cut off" else b"x" + content[1:])
    host.app.unlink()
    summary = host.drain()
    assert sent(recorder) == distinct(b"=== started ===\n")
    assert summary.unknown_losses == 2, "what the archive holds, and what became of the file"
