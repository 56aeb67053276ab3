"""Copytruncate with a pattern that matches the copies too: their lines are not sent twice."""

from __future__ import annotations

import itertools
import os
import shutil

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark_producer.files import waits
from hourmark_producer.files.tracked_file import TrackedFile, TrackedFiles
from hourmark_producer.history.copies import CopyCandidate, CopyOrigin, find_origin


def test_copytruncate_does_not_duplicate_everything_though_the_copy_matches(
    host: Host, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    with host.running(lines(100)) as tailer:
        recorder.wait_text(lines(100))
        shutil.copyfile(host.app, host.logs / "app.log.1")
        os.truncate(host.app, 0)
        host.append(lines(10, 100))
        wait_for(
            lambda: len(tailer.files) == 2 and all(file.is_read for file in tailer.files),
            "both are read",
        )
        recorder.wait_text(lines(110))
    assert recorder.text().count(b"line 00000050 ") == 1
    assert "is a copy of" in caplog.text
    host.drain()
    assert len(recorder.text()) == len(lines(110)), "nor at the next start"


def test_a_copy_made_while_the_agent_was_down(host: Host, recorder: Recorder) -> None:
    host.drain(lines(100))
    shutil.copyfile(host.app, host.logs / "app.log.1")
    os.truncate(host.app, 0)
    host.drain(lines(10, 100))
    assert sorted(recorder.text().splitlines()) == lines(110).splitlines()


@pytest.mark.slow
def test_a_copy_that_is_still_being_made_is_waited_for(host: Host, recorder: Recorder) -> None:
    with host.running(lines(1000)) as tailer:
        recorder.wait_text(lines(1000))
        host.append(lines(10), host.logs / "app.log.1")
        scans = tailer.scanner.scans
        wait_for(lambda: len(tailer.files) == 2 and tailer.scanner.scans > scans + 5, "it is seen")
        host.append(lines(990, 10), host.logs / "app.log.1")
        wait_for(lambda: all(file.is_read for file in tailer.files), "it is passed over")
    assert len(recorder.text()) == len(lines(1000))


def test_a_copy_that_grows_beyond_what_was_read_of_its_file_is_waited_for_too(
    host: Host, recorder: Recorder
) -> None:
    """Its file is behind: more is in the half of the copy than was read."""
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda one: 200 if one.range.end <= 8192 else 503
    copy = host.logs / "app.log.1"
    with host.running(lines(1000)) as tailer:
        wait_for(lambda: len(recorder.stored) >= 8, "some of it is read")
        copy.write_bytes(lines(600))
        scans = tailer.scanner.scans
        wait_for(
            lambda: len(tailer.files) == 2 and tailer.scanner.scans > scans + 5,
            "the half of it is seen",
        )
        host.append(lines(400, 600), copy)
        os.truncate(host.app, 0)
        recorder.behaviour = lambda _: 200
        recorder.wait_text(lines(1000))
    host.drain()
    assert sorted(recorder.text().splitlines()) == lines(1000).splitlines()


@pytest.mark.slow
def test_a_copy_that_has_all_of_its_file_is_waited_for_too_as_both_may_grow(
    host: Host, recorder: Recorder
) -> None:
    """A program goes on writing while its log is copied: the copier has not come to the end yet."""
    copy = host.logs / "app.log.1"
    with host.running(lines(1000)) as tailer:
        recorder.wait_text(lines(1000))
        copy.write_bytes(lines(1000))
        scans = tailer.scanner.scans
        wait_for(lambda: len(tailer.files) == 2 and tailer.scanner.scans > scans + 5, "it is seen")
        for path in (host.app, copy):
            host.append(lines(10, 1000), path)
        recorder.wait_text(lines(1010))
        os.truncate(host.app, 0)
        wait_for(lambda: all(file.is_read for file in tailer.files), "it is passed over")
    host.drain(lines(10, 2000))
    assert sorted(recorder.text().splitlines()) == [
        *lines(1010).splitlines(),
        *lines(10, 2000).splitlines(),
    ]


def test_a_copy_is_known_though_its_file_was_read_on_since(host: Host, recorder: Recorder) -> None:
    host.drain(lines(100))
    copy = host.logs / "app.log.bak"
    shutil.copyfile(host.app, copy)
    os.utime(copy, (1, 1))
    host.settings["sources"][0].exclude.append("*.bak")
    host.drain(lines(50, 100))
    host.settings["sources"][0].exclude.clear()
    host.drain()
    assert b"".join(one.body for one in recorder.stored) == lines(150)


@pytest.mark.slow
def test_a_copy_of_what_nobody_read_yet_is_waited_for(host: Host, recorder: Recorder) -> None:
    """Either may be read first: then nothing tells that the other is the same."""
    host.append(lines(1000))
    shutil.copyfile(host.app, host.logs / "app.log.1")
    host.drain()
    assert b"".join(one.body for one in recorder.stored) == lines(1000)


@pytest.mark.slow
def test_a_copy_of_what_was_truncated_before_anybody_read_it_is_read(
    host: Host, recorder: Recorder
) -> None:
    copy = host.logs / "app.log.1"
    recorder.rules = ""  # nothing can be sent yet
    with host.running(lines(1000)) as tailer:
        shutil.copyfile(host.app, copy)
        scans = tailer.scanner.scans
        wait_for(lambda: len(tailer.files) == 2 and tailer.scanner.scans > scans + 5, "it is seen")
        os.truncate(host.app, 0)
        recorder.rules = "rules-1"
        wait_for(lambda: all(file.is_read for file in tailer.files), "it is read")
    assert recorder.text() == lines(1000)


@pytest.mark.slow
def test_a_copy_of_a_line_without_its_end_is_not_waited_for(host: Host, recorder: Recorder) -> None:
    host.append(b"x" * 100)
    shutil.copyfile(host.app, host.logs / "app.log.1")
    with host.running() as tailer:
        host.append(b"y\n", host.logs / "app.log.1")
        recorder.wait_text(b"x" * 100 + b"y\n")
        wait_for(lambda: all(file.is_read for file in tailer.files), "all is looked at")


@pytest.mark.slow
def test_what_is_written_to_a_copy_is_its_own(host: Host, recorder: Recorder) -> None:
    host.drain(lines(100))
    shutil.copyfile(host.app, host.logs / "app.log.1")
    host.drain()
    host.append(lines(5, 100), host.logs / "app.log.1")
    host.drain()
    assert b"".join(one.body for one in recorder.stored) == lines(105)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (
            lines(50) + lines(60, 50),
            "app.log.1",
        ),  # other lines after the same beginning: not a copy
        (lines(110), "other.log"),  # the same content, under a name of its own
    ],
)
def test_other_files_are_no_copies(
    host: Host, recorder: Recorder, content: bytes, name: str
) -> None:
    host.settings["sources"][0].paths[0] = f"{host.logs}/*"
    host.drain(lines(40) + lines(60, 1000))
    (host.logs / name).write_bytes(content)
    host.drain()
    assert recorder.files() == sorted([lines(40) + lines(60, 1000), content])


def test_lines_that_are_all_alike_are_sent_rather_than_passed_over(
    host: Host, recorder: Recorder
) -> None:
    host.drain(b"heartbeat ok\n" * 100)
    shutil.copyfile(host.app, host.logs / "app.log.1")
    host.drain()
    assert len(recorder.stored) == 2


@pytest.mark.parametrize(
    "name", ["app-20261124.log", "app.log-20261124", "app.1.log", "app.log.old"]
)
def test_a_copy_is_known_under_each_name_that_rotation_gives(
    host: Host, recorder: Recorder, name: str
) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/*.log*"])]
    host.drain(lines(100))
    shutil.copyfile(host.app, host.logs / name)
    os.truncate(host.app, 0)
    host.drain(lines(10, 5000))
    assert sorted(recorder.contents().values()) == sorted([lines(100), lines(10, 5000)])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_copy_that_holds_less_than_was_read_before_the_truncation(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 0.3)
    copy = host.logs / "being-made"
    with host.running(lines(100)):
        recorder.wait_size(len(lines(100)))
        copy.write_bytes(host.app.read_bytes() + b"half a li")
        for start in (100, 120, 140):
            host.append((b"half a line\n" if start == 100 else b"") + lines(20, start))
            recorder.wait_size(len(lines(start + 20)) + 12)
        if not restarts:
            os.truncate(host.app, 0)
            copy.rename(host.logs / "app.log.1")
            host.append(lines(10, 5000))
            wait_for(
                lambda: lines(10, 5000) in recorder.contents().values(),
                "the new generation is read",
            )
    if restarts:
        os.truncate(host.app, 0)
        copy.rename(host.logs / "app.log.1")
        host.append(lines(10, 5000))
    summary = host.drain()
    whole = lines(100) + b"half a line\n" + lines(60, 100)
    assert sorted(recorder.contents().values()) == sorted([whole, lines(10, 5000)])
    (host.logs / "app.log.1").unlink()
    assert (summary.lost_bytes, host.drain().lost_bytes) == (0, 0), (
        "its half line was read from the log"
    )


def test_a_copy_of_a_log_that_goes_on(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 0.3)
    host.drain(lines(100))
    shutil.copyfile(host.app, host.logs / "app.log.1")
    host.drain(lines(20, 100))
    host.drain(lines(20, 120))
    assert list(recorder.contents().values()) == [lines(140)]


def test_another_file_that_begins_alike_is_no_copy(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 0.3)
    banner = lines(30)
    host.drain(banner)
    host.drain(lines(20, 1000))
    host.drain(lines(50, 2000))
    other = banner + lines(21, 7000)
    host.append(other, host.logs / "app.log.1")
    host.drain()
    assert sorted(recorder.contents().values()) == sorted(
        [banner + lines(20, 1000) + lines(50, 2000), other]
    )


@pytest.mark.parametrize(("copied", "more"), [(3, 2), (15, 5), (100, 20), (1000, 500)])
def test_a_copy_of_a_part_of_what_was_read_at_once(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, copied: int, more: int
) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 0.3)
    host.drain(lines(copied + more))
    host.append(lines(copied), host.logs / "app.log.1")
    os.truncate(host.app, 0)
    host.append(lines(7, 5000))
    host.drain()
    assert sorted(recorder.contents().values()) == sorted([lines(copied + more), lines(7, 5000)])


def test_a_small_file_that_begins_as_its_log_does_is_its_own(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was made and rotated away unseen, where every file begins with the same lines."""
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 0.3)
    banner = lines(12)
    host.drain(banner + lines(50, 1000))
    host.append(banner + lines(2, 7000), host.logs / "app.log.1")
    host.drain()
    assert sorted(recorder.contents().values()) == sorted(
        [banner + lines(50, 1000), banner + lines(2, 7000)]
    )


def test_a_copy_that_is_begun_while_it_is_looked_at(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was empty when it was told that it is no copy, and had all its lines when it was cut."""
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 0.3)
    host.drain(lines(100))
    copy = host.logs / "app.log.1"
    copy.touch()

    def slow(files: TrackedFiles, file: TrackedFile, looked: CopyCandidate) -> CopyOrigin | None:
        origin = find_origin(files, file, looked)
        if looked.size == 0 and file.place.seen_at == str(copy):
            copy.write_bytes(lines(100))
        return origin

    monkeypatch.setattr("hourmark_producer.history.match.find_origin", slow)
    with host.running():
        wait_for(lambda: copy.stat().st_size > 0, "it is looked at")
        host.append(lines(10, 5000))
        recorder.wait_size(len(lines(110)))
    host.drain()
    assert list(recorder.contents().values()) == [lines(100) + lines(10, 5000)]


def test_a_small_file_that_begins_as_its_log_did_before_a_truncation_is_its_own(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 0.3)
    banner = lines(12)
    host.drain(banner + lines(50, 1000))
    os.truncate(host.app, 0)
    host.drain(banner + lines(3, 5000))
    host.append(banner + lines(2, 7000), host.logs / "app.log.1")
    host.drain()
    expected = [banner + lines(50, 1000), banner + lines(3, 5000), banner + lines(2, 7000)]
    assert sorted(recorder.contents().values()) == sorted(expected)


@pytest.mark.parametrize("truncated", [False, True])
def test_a_file_that_begins_alike_is_read_though_it_is_written_all_the_time(
    host: Host, recorder: Recorder, truncated: bool
) -> None:
    """Two logs of one program, whose lines begin under the same banner, and of which one is named
    after the other.
    """
    banner = lines(12)
    host.drain(banner + lines(5000, 1000))
    if truncated:
        os.truncate(host.app, 0)
        host.drain(banner + lines(3, 5000))
    other = host.logs / "app.log-1"
    host.append(banner + lines(40, 70_000), other)

    def is_read_while_it_grows() -> bool:
        host.append(lines(1, 80_000), other)
        return lines(40, 70_000) in recorder.text()

    with host.running():
        wait_for(is_read_while_it_grows, "it is read", within_s=4.0)


def test_a_copy_in_the_making_that_has_its_first_line_alone(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.COPYING_S", 3.0)
    copy, whole = host.logs / "app.log.1", lines(40)
    host.drain(lines(1))
    host.append(whole[len(lines(1)) :])
    copy.write_bytes(lines(1))
    with host.running():
        recorder.wait_size(len(whole))
        host.append(whole[len(lines(1)) :], copy)
    host.drain()
    assert list(recorder.contents().values()) == [whole]


@pytest.mark.slow
@pytest.mark.parametrize("excluded", [True, False])
@pytest.mark.parametrize("has_log_begun_anew", [True, False])
def test_lines_added_to_a_backup_of_a_log_that_goes_on_come_twice_unless_it_is_excluded(
    host: Host, recorder: Recorder, has_log_begun_anew: bool, excluded: bool
) -> None:
    """As docs/concepts/rotation.md says: what is added to a copy is its own, though it may be in the
    log too. A backup that begins anew is compared again.
    """
    host.settings["sources"][0].exclude[:] = ["*.bak"] if excluded else []
    host.drain(lines(100))
    shutil.copyfile(host.app, host.logs / "app.log.bak")
    host.drain()
    if has_log_begun_anew:
        os.truncate(host.app, 0)
    host.drain(lines(50, 1000))
    shutil.copyfile(host.app, host.logs / "app.log.bak")
    assert host.drain().lost_bytes == 0
    times = 1 if excluded or has_log_begun_anew else 2
    sent = b"".join(one.body for one in recorder.stored)
    assert sorted(sent.splitlines()) == sorted((lines(100) + times * lines(50, 1000)).splitlines())


def test_a_copy_is_known_by_each_name_that_its_log_had(host: Host, recorder: Recorder) -> None:
    """It had two, and lost the one that the copy is named after before the copy was looked into."""
    kept = host.logs / "app.log-kept"
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda one: 200 if one.range.end <= 2048 else 503
    host.append(lines(500), kept)
    with host.running() as tailer:
        wait_for(lambda: len(tailer.files) == 1 and bool(recorder.stored), "some of it is sent")
        host.app.hardlink_to(kept)
        scans = tailer.scanner.scans
        wait_for(lambda: tailer.scanner.scans > scans + 3, "its other name is seen")
        (copy := host.logs / "being-made").write_bytes(host.app.read_bytes())
        os.truncate(host.app, 0)
        host.app.unlink()
        copy.rename(host.logs / "app.log.1")
        wait_for(lambda: len(tailer.files) == 2, "the copy is followed")
        recorder.behaviour = lambda _: 200
        wait_for(lambda: all(file.is_read for file in tailer.files), "all is read")
        assert recorder.last.lost_bytes == 0
    assert recorder.sent() == lines(500).splitlines(keepends=True)


@pytest.mark.slow
def test_what_a_copy_holds_that_was_deleted_while_it_was_held_open_is_no_loss(
    host: Host, recorder: Recorder
) -> None:
    """It is looked into a moment later, and read on from where its log was."""
    host.settings["range_bytes"] = 1024
    recorder.behaviour = lambda one: 200 if one.range.end <= 2048 else 503
    copy = host.logs / "app.log.1"
    with host.running(lines(500)) as tailer:
        recorder.wait_stored(2)
        shutil.copyfile(host.app, copy)
        wait_for(lambda: len(tailer.files) == 2, "the copy is followed")
        host.append(lines(10, 500))
        (log,) = tailer.files.with_name(str(host.app))
        wait_for(lambda: log.observed.size == len(lines(510)), "it grew, and that was seen")
        os.truncate(host.app, 0)
        copy.unlink()
        recorder.behaviour = lambda _: 200
        wait_for(lambda: len(tailer.files) == 1 and log.is_read, "all is read")
        recorder.reports.clear()
        wait_for(lambda: bool(recorder.reports), "a report")
        assert recorder.last.lost_bytes == len(lines(10))
    assert recorder.sent() == lines(500).splitlines(keepends=True)


@pytest.mark.parametrize("kept", [50, 0])
def test_a_copy_that_is_truncated_before_it_is_read_is_not_sent_again(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """A second rotation writes a shorter copy over the first one, which was observed, but not read.

    Shown with 50 lines that are kept, and with a copy that is begun anew.
    """
    host.drain(lines(100))
    copy = host.logs / "app.log.1"
    shutil.copyfile(host.app, copy)
    with host.tailer() as (tailer, _):
        tailer.scanner.scan()
    os.truncate(copy, len(lines(kept)))
    if not kept:
        host.append(lines(60), copy)
    monkeypatch.setattr(waits, "COPYING_S", 0.1)
    assert host.drain().finished
    assert recorder.text() == lines(100)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_copy_that_the_next_rotation_overwrites_is_not_sent_again(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """`cp app.log.1 app.log.2; cp app.log app.log.1; : > app.log`: the copies keep their inodes."""
    monkeypatch.setattr(waits, "COPYING_S", 0.1)
    names = [host.app, *(host.logs / f"app.log.{n}" for n in range(1, copies + 1))]
    for start in range(0, 600, 100):
        assert host.drain(lines(100, start)).finished
        for name, copy in reversed(list(itertools.pairwise(names))):
            if name.exists():
                shutil.copyfile(name, copy)
        os.truncate(host.app, 0)
    assert host.drain().finished
    assert sorted(recorder.text().splitlines()) == lines(600).splitlines()


def test_what_was_unread_at_the_truncation_is_read_in_the_overwritten_copy(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "COPYING_S", 0.1)
    copy = host.logs / "app.log.1"
    for start in range(0, 300, 100):
        assert host.drain(lines(50, start)).finished
        host.append(lines(50, start + 50))
        shutil.copyfile(host.app, copy)
        os.truncate(host.app, 0)
    assert host.drain().finished
    assert sorted(recorder.text().splitlines()) == lines(300).splitlines()
    assert recorder.last.lost_bytes == 0


@pytest.mark.slow
def test_copies_that_are_overwritten_while_the_tailer_runs_are_not_sent_again(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "COPYING_S", 0.5)
    copy = host.logs / "app.log.1"
    with host.running() as tailer:
        for start in range(0, 300, 100):
            host.append(lines(100, start))
            with copy.open("wb") as written:  # in two parts, each of which a scan may see
                for part in (lines(30, start), lines(70, start + 30)):
                    scans = tailer.scanner.scans
                    wait_for(lambda at=scans: tailer.scanner.scans > at + 2, "scans")  # type: ignore[misc]
                    written.write(part)
                    written.flush()
            os.truncate(host.app, 0)
            wait_for(lambda: all(file.is_read for file in tailer.files), "both are read", 30)
    host.drain()
    assert sorted(recorder.text().splitlines()) == lines(300).splitlines()
