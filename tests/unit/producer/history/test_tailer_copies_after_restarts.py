"""copytruncate while the tailer is down, or is killed between the truncation and its look at the
copy.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
import stat
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder, recording
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark.process.file_identity import identify
from hourmark_producer.checkpoint import database as changes
from hourmark_producer.files import waits
from hourmark_producer.files.tracked_file import FilePosition
from hourmark_producer.history import rotated_names


def copytruncate(host: Host, copy: Path) -> None:
    copy.write_bytes(host.app.read_bytes())
    host.app.write_bytes(b"")


def test_what_was_unread_when_the_file_was_truncated_is_read_in_its_copy(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(100, 100))
        copytruncate(host, host.logs / "app.log.1")
        summary = host.drain(lines(100, 200))
    assert sorted(recorder.text().splitlines()) == lines(300).splitlines()
    assert summary.lost_bytes == 0


def test_a_copy_is_known_by_a_tailer_that_was_restarted_after_it_saw_the_truncation(
    tmp_path: Path,
) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        copytruncate(host, tmp_path / "being-copied")
        host.drain(lines(100, 200))
        (tmp_path / "being-copied").rename(host.logs / "app.log.1")
        host.drain()
    assert sorted(recorder.text().splitlines()) == [
        *lines(100).splitlines(),
        *lines(100, 200).splitlines(),
    ]


def test_the_rest_is_read_in_a_copy_that_no_pattern_matches(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.settings["sources"] = [TailedSource(name="app", paths=[str(host.app)])]
        host.drain(lines(100))
        host.append(lines(5000, 100))
        copytruncate(host, host.logs / "app-20261123.log")
        summary = host.drain(lines(100, 6000))
    assert sorted(recorder.contents().values()) == sorted([lines(5100), lines(100, 6000)])
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 1), (
        "what came between copy and truncation is logrotate's"
    )


def test_a_socket_whose_name_could_be_that_of_a_copy_holds_nothing_up(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(100, 100))
        copytruncate(host, host.logs / "app.log.1")
        os.mknod(host.logs / "app.log.2", 0o600 | stat.S_IFSOCK)
        summary = host.drain(lines(100, 200))
    assert sorted(recorder.text().splitlines()) == lines(300).splitlines()
    assert summary.lost_bytes == 0


def test_a_socket_whose_name_could_be_that_of_a_packed_file_holds_nothing_up(
    tmp_path: Path,
) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(100, 100))
        (host.logs / "app.log.1.gz").write_bytes(gzip.compress(host.app.read_bytes()))
        host.app.unlink()
        os.mknod(host.logs / "app.log.2.gz", 0o600 | stat.S_IFSOCK)
        summary = host.drain()
    assert sorted(recorder.text().splitlines()) == lines(200).splitlines()
    assert summary.lost_bytes == 0


def test_the_rest_is_read_in_a_copy_that_was_packed(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(5000, 100))
        (host.logs / "app.log.1.gz").write_bytes(gzip.compress(host.app.read_bytes()))
        host.app.write_bytes(lines(7000, 6000))
        summary = host.drain()
    assert {key[1]: content for key, content in recorder.contents().items()} == {
        0: lines(5100),
        1: lines(7000, 6000),
    }
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 1)


def test_what_is_written_to_a_copy_while_the_rest_is_read_there_is_its_own(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        copy = host.logs / "app.log.1"
        host.settings["sources"] = [TailedSource(name="app", paths=[str(host.app), str(copy)])]
        host.drain(lines(100))
        host.append(lines(100, 100))
        copytruncate(host, host.logs / "app.log.0")
        recorder.behaviour = lambda _: 503
        with host.running() as tailer:
            recorder.wait_received(3)
            host.append(lines(10, 200), host.logs / "app.log.0")
            (host.logs / "app.log.0").rename(copy)
            scans = tailer.scanner.scans
            wait_for(
                lambda: len(tailer.files) == 2 and tailer.scanner.scans > scans + 5, "it is seen"
            )
            recorder.behaviour = lambda _: 200
            wait_for(lambda: all(file.is_read for file in tailer.files), "both are read")
    assert b"".join(sorted(one.body for one in recorder.stored)) == lines(210)


def test_a_stop_while_the_rest_is_read_in_a_copy(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(2000, 100))
        copytruncate(host, host.logs / "app.log.1")
        host.settings["range_bytes"] = 1024
        recorder.behaviour = lambda one: 503 if one.number > 10 else 200
        with host.running(lines(100, 6000)):
            recorder.wait_received(13)
        recorder.behaviour = lambda _: 200
        summary = host.drain()
    assert sorted(recorder.contents().values()) == sorted([lines(2100), lines(100, 6000)])
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 1)


def test_truncated_under_load_while_the_agent_lags(tmp_path: Path) -> None:
    """The copy is whole, and what is in it is delivered once, though the file was truncated long
    before it was read.
    """
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        recorder.behaviour = lambda one: 200 if one.number == 0 else 503
        with host.running(lines(100)) as tailer:
            recorder.wait_received(1)
            host.append(lines(5000, 100))
            recorder.wait_received(3)
            host.append(lines(5000, 5100))
            wait_for(lambda: recorder.last.pending_bytes == len(lines(10_000)), "it is known")
            copytruncate(host, host.logs / "app.log.1")
            scans = tailer.scanner.scans
            wait_for(lambda: tailer.scanner.scans > scans + 3, "it is seen")
            host.append(lines(10, 20_000))
            recorder.behaviour = lambda _: 200
            recorder.wait_text(lines(10_110))
            wait_for(lambda: recorder.last.pending_bytes == 0, "it is read")
        assert sorted(recorder.contents().values()) == sorted([lines(10_100), lines(10, 20_000)])
        assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 1)


def test_a_run_that_saw_the_truncation_ends_before_it_looked_for_the_copy(tmp_path: Path) -> None:
    """And then both are renamed: what was known of the content before must outlast that run."""
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        recorder.behaviour = lambda one: 200 if one.number == 0 else 503
        with host.running(lines(100)) as tailer:
            recorder.wait_received(1)
            host.append(lines(5000, 100))
            recorder.wait_received(3)
            host.append(lines(5000, 5100))
            wait_for(lambda: recorder.last.pending_bytes == len(lines(10_000)), "it is known")
            copytruncate(host, host.logs / "app.log.1")
            scans = tailer.scanner.scans
            wait_for(lambda: tailer.scanner.scans > scans + 3, "it is seen")
        (host.logs / "app.log.1").rename(host.logs / "app.log.2")
        host.app.rename(host.logs / "app.log.1")
        recorder.behaviour = lambda _: 200
        summary = host.drain(lines(10, 20_000))
    assert sorted(recorder.contents().values()) == sorted([lines(10_100), lines(10, 20_000)])
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 1)


def test_a_scan_that_is_late_does_not_undo_what_is_known_of_a_file_that_began_anew(
    tmp_path: Path,
) -> None:
    """Else a copy would be read again from where the file was when that scan began, after a
    restart.
    """
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        with host.tailer() as (_, checkpoint):
            (file,) = checkpoint.files()
            before = file.progress.position
            anew = FilePosition(generation=before.generation + 1)
            checkpoint.commit(
                [
                    changes.save_position(file.file_id, anew),
                    changes.save_pre_truncation_position(file.file_id, before),
                ]
            )
            checkpoint.commit(
                [
                    changes.save_pre_truncation_position_if_current(
                        file.file_id, dataclasses.replace(before, offset=64)
                    )
                ]
            )
            assert checkpoint.files()[0].earlier.latest == dataclasses.replace(
                FilePosition(),
                generation=before.generation,
                offset=before.offset,
                anchor=before.anchor,
                head=before.head,
                marks=before.marks,
            )
            checkpoint.commit([changes.save_pre_truncation_position_if_current(file.file_id, anew)])
            assert checkpoint.files()[0].earlier.latest == anew


def test_both_the_file_and_its_copy_are_renamed_before_the_copy_is_seen(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        copytruncate(host, host.logs / "app.log.2")
        host.app.rename(host.logs / "app.log.1")
        host.drain(lines(10, 20_000))
    assert sorted(recorder.text().splitlines()) == [
        *lines(100).splitlines(),
        *lines(10, 20_000).splitlines(),
    ]


@pytest.mark.slow
def test_the_folder_is_away_when_the_copy_is_looked_for(tmp_path: Path) -> None:
    """What cannot be looked at says nothing: what was unread may be there when it is back."""
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        recorder.behaviour = lambda one: 200 if one.number == 0 else 503
        away = tmp_path / "away"
        with host.running(lines(100)) as tailer:
            recorder.wait_received(1)
            host.append(lines(5000, 100))
            recorder.wait_received(3)
            host.append(lines(5000, 5100))
            wait_for(lambda: recorder.last.pending_bytes == len(lines(10_000)), "it is known")
            copytruncate(host, host.logs / "app.log.1")
            host.logs.rename(away)
            recorder.behaviour = lambda _: 200
            recorder.wait_text(lines(5100))
            scans = tailer.scanner.scans
            wait_for(lambda: tailer.scanner.scans > scans + 3, "it is looked for")
            away.rename(host.logs)
            recorder.wait_text(lines(10_100))
            wait_for(lambda: recorder.last.pending_bytes == 0, "it is read")
        assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 1)


def test_a_packed_file_is_renamed_while_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = rotated_names.find_compressed_candidates
    stale = iter([{"app.log.1.gz": 1}])
    monkeypatch.setattr(
        "hourmark_producer.history.remainders.find_compressed_candidates",
        lambda file, paths: next(stale, None) or listed(file, paths),
    )
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(100, 100))
        (host.logs / "app.log.2.gz").write_bytes(gzip.compress(host.app.read_bytes()))
        host.app.unlink()
        summary = host.drain()
    assert next(stale, None) is None, "it was looked for under the name before"
    assert recorder.text() == lines(200)
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


@pytest.mark.parametrize("anew", [b"", lines(10, 20_000)], ids=["no_new_one", "a_new_one"])
def test_the_file_is_gone_and_its_copy_has_what_was_unread(tmp_path: Path, anew: bytes) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(5000, 100))
        (host.logs / "app.log.1").write_bytes(host.app.read_bytes())
        host.app.rename(tmp_path / "kept-so-that-its-inode-is-its-own")
        host.drain(anew)
    assert sent(recorder) == [*lines(5100).splitlines(), *anew.splitlines()]


def test_a_copy_with_what_was_unread_comes_after_its_file_was_given_up(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(5000, 100))
        host.app.rename(tmp_path / "gone")
        host.drain()
        (host.logs / "app.log.1").write_bytes((tmp_path / "gone").read_bytes())
        host.drain()
    assert sent(recorder) == lines(5100).splitlines()


def test_a_copy_with_what_was_unread_comes_after_its_file_began_anew(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(5000, 100))
        copytruncate(host, tmp_path / "being-copied")
        host.drain(lines(10, 20_000))
        (tmp_path / "being-copied").rename(host.logs / "app.log.1")
        host.drain()
    assert sent(recorder) == [*lines(5100).splitlines(), *lines(10, 20_000).splitlines()]


def sent(recorder: Recorder) -> list[bytes]:
    """All lines, sorted; a copy's begin where its file was read to."""
    return sorted(line for one in recorder.stored for line in one.body.splitlines())


def test_a_reused_inode_without_birth_times_whose_old_file_was_packed(tmp_path: Path) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.identify = lambda descriptor: identify(descriptor)._replace(birth_ns=0)
        host.drain(lines(100))
        host.append(lines(100, 100))
        (host.logs / "app.log.1.gz").write_bytes(gzip.compress(host.app.read_bytes()))
        host.app.write_bytes(lines(10, 500))  # the same inode
        assert host.drain().lost_bytes == 0
    assert {key[1]: content for key, content in recorder.contents().items()} == {
        0: lines(200),
        1: lines(10, 500),
    }


@pytest.mark.slow
def test_a_copy_of_a_file_that_was_truncated_and_renamed_meanwhile_is_read_on_from_where_that_was_read(
    tmp_path: Path,
) -> None:
    """Whether it was truncated is not known before it was looked at: until then the copy waits."""
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/app.log*"])]
        host.drain(lines(1000))
        host.append(lines(1, 1000))
        copytruncate(host, host.logs / "app.log.3")
        host.app.rename(host.logs / "old.log")
        host.app.write_bytes(lines(10, 5000))
        host.drain()
    came = [line for one in recorder.stored for line in one.body.splitlines()]
    assert sorted(came) == sorted([*lines(1001).splitlines(), *lines(10, 5000).splitlines()])


def test_a_rotation_gives_a_packed_file_the_name_of_another_while_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        host.append(lines(100, 100))
        older, newer = host.logs / "app.log.2.gz", host.logs / "app.log.1.gz"
        older.write_bytes(gzip.compress(host.app.read_bytes()))
        newer.write_bytes(gzip.compress(lines(10, 1000)))
        host.app.unlink()
        listed, before = (
            rotated_names.find_compressed_candidates,
            iter([{str(newer): older.stat().st_ino}]),
        )
        monkeypatch.setattr(
            "hourmark_producer.history.remainders.find_compressed_candidates",
            lambda file, paths: next(before, None) or listed(file, paths),
        )
        summary = host.drain()
    assert recorder.files() == sorted([lines(200), lines(10, 1000)])
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_what_was_left_to_a_file_is_read_in_its_copy_though_that_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy was passed over while it was whole; then it was truncated, and removed while nobody
    looked.
    """
    monkeypatch.setattr(waits, "COPYING_S", 0.0)
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.drain(lines(100))
        recorder.behaviour = lambda one: 503 if one.range.path.endswith("app.log") else 200
        with host.running(lines(5000, 100)) as tailer:
            wait_for(
                lambda: any(file.progress.in_flight for file in tailer.files),
                "some of it is on its way",
            )
            host.append(lines(5000, 5100))
            (host.logs / "app.log.1").write_bytes(host.app.read_bytes())
            wait_for(
                lambda: (
                    len(tailer.files) == 2
                    and all(
                        f.observed.size == f.progress.quiet_to
                        for f in tailer.files
                        if f.place.path.endswith(".1")
                    )
                ),
                "it is passed over",
            )
            host.app.write_bytes(b"")
            scans = tailer.scanner.scans
            wait_for(lambda: tailer.scanner.scans > scans + 3, "it is seen")
        host.app.unlink()
        recorder.behaviour = lambda _: 200
        host.drain()
    assert sorted(recorder.text().splitlines()) == lines(10_100).splitlines()


def test_a_log_that_was_copied_truncated_and_moved_away_has_its_rest_read_in_the_copy(
    tmp_path: Path,
) -> None:
    """Under its latest name nothing is called after it."""
    with recording() as recorder:
        host = Host(tmp_path, recorder.url)
        host.settings["range_bytes"] = 1024
        recorder.behaviour = lambda one: 200 if one.range.end <= 2048 else 503
        with host.running(lines(500)):
            recorder.wait_stored(2)
        recorder.behaviour = lambda _: 200
        copytruncate(host, host.logs / "app.log.1")
        host.app.rename(host.logs / "old-18.log")
        summary = host.drain(lines(10, 9000))
    assert recorder.sent() == (lines(500) + lines(10, 9000)).splitlines(keepends=True)
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 1)
