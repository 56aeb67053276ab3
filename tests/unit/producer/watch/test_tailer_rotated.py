"""Files that were made and rotated away while nobody looked, under a pattern that matches no
rotated name.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark.process.file_identity import FileIdentity, identify
from hourmark_producer.report.summary import RunSummary


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourmark_producer.files.waits.PACKING_S", 0.3)


@pytest.fixture(params=["app.log", "*.log", "**/app.log"])
def narrow(request: pytest.FixtureRequest, host: Host) -> Host:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/{request.param}"])]
    return host


def sent(recorder: Recorder) -> list[bytes]:
    return b"".join(one.body for one in recorder.stored).splitlines(keepends=True)


def check(recorder: Recorder, summary: RunSummary, *contents: bytes) -> None:
    assert sorted(sent(recorder)) == sorted(
        line for content in contents for line in content.splitlines(keepends=True)
    )
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def rotate_twice(host: Host) -> None:
    host.append(lines(50, 100))
    host.app.rename(host.logs / "app.log.1")
    host.append(lines(70, 1000))
    (host.logs / "app.log.1").rename(host.logs / "app.log.2")
    host.app.rename(host.logs / "app.log.1")


def rotate(host: Host, start: int) -> None:
    for number in (2, 1):
        (host.logs / f"app.log.{number}").rename(host.logs / f"app.log.{number + 1}")
    host.append(lines(70, start))
    host.app.rename(host.logs / "app.log.1")


def test_one_made_and_rotated_in_an_outage_is_read_once(narrow: Host, recorder: Recorder) -> None:
    narrow.drain(lines(100))
    rotate_twice(narrow)
    expected = lines(150), lines(70, 1000), lines(10, 5000)
    check(recorder, narrow.drain(lines(10, 5000)), *expected)
    (narrow.logs / "app.log.2").rename(narrow.logs / "app.log.3")
    (narrow.logs / "app.log.1").rename(narrow.logs / "app.log.2")
    check(recorder, narrow.drain(), *expected)


def test_also_where_no_new_file_was_made(narrow: Host, recorder: Recorder) -> None:
    narrow.drain(lines(100))
    rotate_twice(narrow)
    check(recorder, narrow.drain(), lines(150), lines(70, 1000))


def test_also_packed(narrow: Host, recorder: Recorder) -> None:
    narrow.drain(lines(100))
    rotate_twice(narrow)
    for name in ("app.log.1", "app.log.2"):
        plain = narrow.logs / name
        with plain.open("rb") as content, gzip.open(f"{plain}.gz", "wb") as packed:
            shutil.copyfileobj(content, packed)
        shutil.copystat(plain, f"{plain}.gz")
        plain.unlink()
    expected = lines(150), lines(70, 1000), lines(10, 5000)
    check(recorder, narrow.drain(lines(10, 5000)), *expected)
    check(recorder, narrow.drain(), *expected)


def test_also_between_two_looks_of_a_tailer_that_runs(narrow: Host, recorder: Recorder) -> None:
    narrow.settings["scan_seconds"] = 0.5
    with narrow.running(lines(100)):
        wait_for(lambda: len(sent(recorder)) == 100, "the first lines are sent")
        rotate_twice(narrow)
        rotate(narrow, 2000)
        (narrow.logs / "app.log.3").rename(narrow.logs / "app.log.4")
        rotate(narrow, 3000)
        narrow.append(lines(10, 5000))
        wait_for(lambda: len(sent(recorder)) == 370, "all are sent")
    check(
        recorder,
        narrow.drain(),
        lines(150),
        lines(70, 1000),
        lines(70, 2000),
        lines(70, 3000),
        lines(10, 5000),
    )


def test_also_where_no_new_file_follows_while_it_runs(narrow: Host, recorder: Recorder) -> None:
    narrow.settings["scan_seconds"] = 0.5
    with narrow.running(lines(100)):
        wait_for(lambda: len(sent(recorder)) == 100, "the first lines are sent")
        rotate_twice(narrow)
        wait_for(lambda: len(sent(recorder)) == 220, "all are sent", within_s=10.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["app.log.1", "app.log-20261124", "app.log-2026-11-24", "app-20261124.log", "app.log.2026_11"],
)
def test_names_that_rotation_makes(host: Host, recorder: Recorder, name: str) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/app.log"])]
    host.drain(lines(10))
    host.app.unlink()
    host.append(lines(70, 1000))
    host.app.rename(host.logs / name)
    host.drain(lines(10, 5000))
    assert set(lines(70, 1000).splitlines(keepends=True)) <= set(sent(recorder))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "app-2.log",
        "app_12.log.gz",
        "app.log.old",
        "app.log1",
        "other.log.1",
        "app.log.1.lz4",
        "app.log.1.swp.x",
    ],
)
def test_other_names_are_left_alone(host: Host, recorder: Recorder, name: str) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/app.log"])]
    host.drain(lines(10))
    host.append(lines(70, 1000), host.logs / name)
    check(recorder, host.drain(lines(10, 10)), lines(20))


def test_what_was_there_before_the_latest_look_is_left_alone(
    narrow: Host, recorder: Recorder
) -> None:
    narrow.append(lines(70, 1000), narrow.logs / "app.log.1")
    narrow.drain(lines(100))
    (narrow.logs / "app.log.1").rename(narrow.logs / "app.log.2")
    narrow.app.rename(narrow.logs / "app.log.1")
    check(recorder, narrow.drain(lines(10, 5000)), lines(100), lines(10, 5000))


def test_an_old_archive_that_was_unpacked_meanwhile_is_left_alone(
    narrow: Host, recorder: Recorder
) -> None:
    narrow.drain(lines(100))
    unpacked = narrow.logs / "app.log.3"
    unpacked.write_bytes(lines(70, 1000))
    os.utime(unpacked, (time.time() - 3600,) * 2)
    check(recorder, narrow.drain(lines(10, 5000)), lines(100), lines(10, 5000))


def test_a_copy_of_what_was_read_is_passed_over(narrow: Host, recorder: Recorder) -> None:
    narrow.drain(lines(100))
    shutil.copyfile(narrow.app, narrow.logs / "app.log.1")
    os.truncate(narrow.app, 0)
    assert narrow.drain(lines(10, 5000)).lost_bytes == 0
    assert sorted(sent(recorder)) == sorted(
        (lines(100) + lines(10, 5000)).splitlines(keepends=True)
    )


def test_what_exclude_names_stays_excluded_under_its_later_name(
    host: Host, recorder: Recorder
) -> None:
    host.settings["sources"] = [
        TailedSource(name="app", paths=[f"{host.logs}/*.log"], exclude=["debug.log"])
    ]
    host.drain(lines(10))
    host.append(lines(70, 1000), host.logs / "debug.log.1")
    check(recorder, host.drain(lines(10, 10)), lines(20))


def test_what_another_source_matches_is_that_sources(host: Host, recorder: Recorder) -> None:
    host.settings["sources"] = [
        TailedSource(name="app", paths=[f"{host.logs}/app.log"]),
        TailedSource(name="old", paths=[f"{host.logs}/app.log.*"]),
    ]
    host.drain(lines(10))
    host.append(lines(70, 1000), host.logs / "app.log.1")
    host.drain(lines(10, 10))
    assert {one.range.source for one in recorder.stored if b"line 00001000" in one.body} == {"old"}


def test_without_birth_times_the_last_write_tells(narrow: Host, recorder: Recorder) -> None:
    narrow.identify = lambda descriptor: FileIdentity(*identify(descriptor)[:2], 0)
    narrow.drain(lines(100))
    rotate_twice(narrow)
    assert narrow.drain(lines(10, 5000)).lost_bytes == 0
    assert sorted(sent(recorder)) == sorted(
        (lines(150) + lines(70, 1000) + lines(10, 5000)).splitlines(keepends=True)
    )


def test_one_that_cannot_be_opened_holds_the_claim(
    host: Host, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/app.log"])]
    host.drain(lines(100))
    host.append(lines(70, 1000), hidden := host.logs / "app.log.1")
    real = os.open

    def refusing(path: str | Path, flags: int, *more: int) -> int:
        if path == str(hidden):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *more)

    monkeypatch.setattr("hourmark_producer.watch.rotated.os.open", refusing)
    with pytest.raises(Exception, match=r"app\.log\.1: Permission denied"):
        host.drain()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["app.log.1", "app.log.1.gz"])
def test_where_the_clock_was_set_back_what_was_rotated_is_unknown_loss(
    narrow: Host, recorder: Recorder, name: str
) -> None:
    narrow.drain(lines(100))
    with contextlib.closing(sqlite3.connect(narrow.state / "checkpoint.sqlite")) as db, db:
        db.execute("UPDATE looked SET at_ms = at_ms + 3600000")
    narrow.app.rename(narrow.logs / "app.log.2")
    (narrow.logs / name).write_bytes(gzip.compress(lines(70, 1000)))
    assert narrow.drain(lines(10, 5000)).unknown_losses == 1
    assert narrow.drain(lines(10, 5010)).unknown_losses == 1, "and it is said once"
    assert sorted(sent(recorder)) == sorted(
        (lines(100) + lines(20, 5000)).splitlines(keepends=True)
    )
