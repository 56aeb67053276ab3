"""Where reading begins (read_from), and what is left out (exclude, ignore_older_seconds)."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.globs import matches_any_glob
from hourmark.config.groups import TailedSource
from hourmark.config.groups import TailerSettings as TailerConfig
from hourmark.errors import ConfigError
from hourmark_producer.checkpoint.books import SourceBalance
from hourmark_producer.checkpoint.database import Change, Checkpoint, CheckpointFailed
from hourmark_producer.history import beginnings
from hourmark_producer.settings import validate_settings

LINE = 23  # bytes of one of `lines`
OLD_S = time.time() - 86_400
SINCE = datetime.fromtimestamp(OLD_S + 3600, UTC).isoformat()


def say(host: Host, **settings: Any) -> None:
    host.settings["sources"] = [
        TailedSource(name="app", paths=[f"{host.logs}/app.log*"], **settings)
    ]


def kept(host: Host) -> SourceBalance:
    with host.tailer() as (tailer, _):
        return tailer.balances()["app"]


def skipped(host: Host, count: int) -> None:
    balance = kept(host)
    assert balance.skipped == count
    assert balance.off_by == balance.lost == 0


def sent(recorder: Recorder) -> bytes:
    """Bytes in the order of their lines; ranges may begin anywhere."""
    return b"".join(sorted(b"".join(one.body for one in recorder.stored).splitlines(keepends=True)))


def make_old(host: Host) -> None:
    os.utime(host.app, (OLD_S, OLD_S))


def test_end_passes_over_what_was_there_and_counts_it(host: Host, recorder: Recorder) -> None:
    say(host, read_from="end")
    host.drain(lines(100))
    assert sent(recorder) == b""
    skipped(host, 100 * LINE)
    host.drain(lines(10, 100))
    assert sent(recorder) == lines(10, 100)
    assert [one.range.start for one in recorder.stored] == [100 * LINE], (
        "ids are those that they would have had"
    )
    skipped(host, 100 * LINE)


@pytest.mark.parametrize(
    "begun", [b"a lin", b"x" * 200_000]
)  # the second is longer than what one look back reads
def test_a_line_that_is_being_written_at_the_first_look_comes_whole(
    host: Host, recorder: Recorder, begun: bytes
) -> None:
    say(host, read_from="end")
    with host.running(lines(5) + begun) as tailer:
        wait_for(lambda: len(tailer.files) == 1, "it is followed")
        host.append(b" ended\n")
        wait_for(lambda: sent(recorder) == begun + b" ended\n", "it is sent whole")
    skipped(host, 5 * LINE)


def test_files_that_appear_later_begin_at_their_start(host: Host, recorder: Recorder) -> None:
    say(host, read_from="end")
    host.drain()  # the first look, at nothing
    host.drain(lines(10))
    assert sent(recorder) == lines(10)
    skipped(host, 0)


def test_a_folder_that_is_made_later_holds_new_files(host: Host, recorder: Recorder) -> None:
    say(host, read_from="end")
    host.logs.rmdir()
    with host.tailer() as (tailer, _):
        tailer.scanner.scan()
    host.logs.mkdir()
    host.drain(lines(10))
    assert sent(recorder) == lines(10)


def test_a_look_that_was_kept_from_seeing_anything_is_none(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(host, read_from="end")
    host.append(lines(10))

    def refuses(folder: str) -> NoReturn:
        raise PermissionError(13, "Permission denied", folder)

    with host.tailer() as (tailer, _), monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuses)
        tailer.scanner.scan()
    host.drain()
    assert sent(recorder) == b""
    skipped(host, 10 * LINE)


def test_a_setting_that_is_made_later_changes_nothing(host: Host, recorder: Recorder) -> None:
    host.drain(lines(10))
    say(host, read_from="end")
    host.append(lines(10, 10), host.logs / "app.log.new")
    host.drain()
    assert sent(recorder) == lines(20)
    skipped(host, 0)


@pytest.mark.parametrize(("is_old", "expected"), [(True, b""), (False, lines(10))])
def test_a_time_passes_over_files_that_were_not_written_since(
    host: Host, recorder: Recorder, is_old: bool, expected: bytes
) -> None:
    say(host, read_from=SINCE)
    host.append(lines(10))
    if is_old:
        make_old(host)
    host.drain()
    assert sent(recorder) == expected
    skipped(host, 10 * LINE - len(expected))


def test_a_kill_before_the_first_look_is_written_leaves_it_the_first(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(host, read_from="end")
    host.append(lines(10))

    def killed(_: Checkpoint, __: list[Change]) -> None:
        raise CheckpointFailed("killed")

    with host.tailer() as (tailer, _), monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "commit", killed)
        with pytest.raises(CheckpointFailed):
            tailer.scanner.scan()
    host.append(lines(10, 10))
    host.drain()
    assert sent(recorder) == b"", "nothing of it was decided before"
    skipped(host, 20 * LINE)


def test_a_kill_after_it_was_written_decides_nothing_anew(host: Host, recorder: Recorder) -> None:
    say(host, read_from="end")
    host.append(lines(10))
    with host.tailer() as (tailer, _):
        tailer.scanner.scan()
    host.append(lines(10, 10))
    host.append(lines(10, 20), host.logs / "app.log.new")
    host.drain()
    assert sent(recorder) == lines(20, 10)
    skipped(host, 10 * LINE)


def test_a_commit_that_fails_later_in_the_first_scan_decides_nothing_anew(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(host, read_from="end")
    host.append(lines(10))
    with host.tailer() as (tailer, _):
        commit, commits = Checkpoint.commit, list[int]()

        def second_fails(checkpoint: Checkpoint, changes: list[Change]) -> None:
            commits.append(len(changes))
            if len(commits) == 2:
                raise CheckpointFailed("full")
            commit(checkpoint, changes)

        monkeypatch.setattr(Checkpoint, "commit", second_fails)
        with pytest.raises(CheckpointFailed):
            tailer.scanner.scan()
            host.append(lines(10, 10), host.logs / "app.log.new")
            tailer.scanner.scan()
        host.append(lines(1, 20), host.logs / "app.log.new")
        tailer.scanner.scan()
        assert [
            file.progress.position.offset
            for file in tailer.files
            if file.place.path.endswith("new")
        ] == [0]


def test_reread_reads_all_from_the_start(host: Host, recorder: Recorder) -> None:
    say(host, read_from="end")
    host.drain(lines(10))
    host.drain(lines(10, 10))
    (host.state / "checkpoint.sqlite").unlink()
    host.drain(reread=True)
    assert set(sent(recorder).splitlines()) == set(lines(20).splitlines())
    skipped(host, 0)


def test_truncation_after_a_late_beginning(host: Host, recorder: Recorder) -> None:
    say(host, read_from="end")
    host.drain(lines(100))
    os.truncate(host.app, 0)
    host.drain(lines(5, 100))
    assert sent(recorder) == lines(5, 100)
    assert recorder.stored[0].range.generation == 1
    skipped(host, 100 * LINE)


def test_excluded_files_do_not_begin_to_be_followed(host: Host, recorder: Recorder) -> None:
    say(host, exclude=["*.debug"])
    host.append(lines(10), host.logs / "app.log.debug")
    host.drain(lines(10, 10))
    assert sent(recorder) == lines(10, 10)
    (host.logs / "app.log.debug").rename(host.logs / "app.log.1")
    host.drain()
    assert sent(recorder) == lines(20), "under a name that is meant it is followed"


def test_a_known_file_is_finished_under_a_name_that_is_named_by(
    host: Host, recorder: Recorder
) -> None:
    say(host, exclude=[f"{host.logs}/app.log.*"])
    host.drain(lines(10))
    host.append(lines(10, 10))
    host.app.rename(host.logs / "app.log.1")
    host.drain(lines(10, 20))
    assert sent(recorder) == lines(30)


def test_old_files_begin_to_be_followed_once_they_are_written_to(
    host: Host, recorder: Recorder
) -> None:
    say(host, ignore_older_seconds=3600)
    host.append(lines(10))
    make_old(host)
    with host.running() as tailer:
        wait_for(lambda: tailer.scanner.scans > 3, "it was looked at")
        assert len(tailer.files) == 0
        host.append(lines(10, 10))
        recorder.wait_text(lines(20))


def test_a_known_file_is_never_too_old(host: Host, recorder: Recorder) -> None:
    host.drain(lines(10))
    say(host, ignore_older_seconds=3600)
    host.append(lines(10, 10))
    make_old(host)
    host.drain()
    assert sent(recorder) == lines(20)


def test_what_is_left_out_is_opened_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    say(host, exclude=["app.log"])
    host.append(lines(10))
    opened, real = list[str](), os.open
    with host.tailer() as (tailer, _):
        monkeypatch.setattr(
            os,
            "open",
            lambda path, flags, **more: opened.append(str(path)) or real(path, flags, **more),  # type: ignore[func-returns-value]
        )
        for _ in range(3):
            tailer.scanner.scan()
    assert opened.count(str(host.app)) == 1


@pytest.mark.parametrize(
    ("path", "glob", "is_named"),
    [
        ("/var/log/app/a.debug", "*.debug", True),
        ("/var/log/app/.a.debug", "*.debug", True),
        ("/var/log/debug/a.log", "*debug*", False),
        ("/var/log/app/a.log", "/var/log/*.log", False),
        ("/var/log/app/a.log", "/var/log/*/a.log", True),
        ("/var/log/app/old/b/a.log", "/var/log/app/old/**", True),
        ("/var/log/app/old", "/var/log/app/old/**", False),
        ("/var/log/app/a.log", "/var/**/a.log", True),
        ("/var/a.log", "/var/**/a.log", True),
        ("/var/log/app/a[1].log", "/var/log/app/a[[]1].log", True),
    ],
)
def test_what_exclude_names(path: str, glob: str, is_named: bool) -> None:
    assert matches_any_glob(path, [glob]) is is_named
    assert not matches_any_glob(path, [])


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"read_from": "beginning"}, "read_from"),
        ({"read_from": "2026-11-01T00:00:00"}, "read_from"),
        ({"exclude": ["old/*.log"]}, "exclude"),
        ({"exclude": [""]}, "exclude"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=f"sources.0.{named}"):
        validate_settings(
            TailerConfig(sources=[TailedSource(name="app", paths=["/a"], **settings)])
        )


@pytest.mark.parametrize(
    "read_from", ["start", "end", "2026-11-01T00:00:00Z", "2026-11-01T01:00:00+01:00"]
)
def test_right_settings_are_taken(read_from: str) -> None:
    beginnings.check_source(
        TailedSource(name="app", paths=["/a"], read_from=read_from, exclude=["*.x", "/a/**"]),
        "here",
    )


@pytest.mark.parametrize(
    "settings", [{"read_from": "end"}, {"exclude": ["*"]}, {"ignore_older_seconds": 1}]
)
def test_what_is_received_is_all_read(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be combined with `input`"):
        validate_settings(
            TailerConfig(sources=[TailedSource(name="app", input="stdin", **settings)])
        )
