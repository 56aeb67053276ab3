"""A claim rests on what was looked at, and is made to each service by its own clock.

Each test is named after the fault.
"""

from __future__ import annotations

import sqlite3
import time

import pytest
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder, recording
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark.records.host_reports import HostReport


def claimed(recorder: Recorder) -> bool:
    return bool(recorder.reports) and recorder.last.caught_up_at_ms is not None


def test_a_service_whose_clock_is_behind_is_claimed_nothing_by_anothers(
    host: Host, recorder: Recorder
) -> None:
    """One fails over to the other, which takes reports but no ranges yet."""
    with recording() as behind:
        recorder.clock = lambda: time.time_ns() // 1_000_000 + 30_000
        behind.behaviour = lambda _: 503
        early: list[HostReport] = []
        host.settings["service_urls"] = [recorder.url, behind.url]
        with host.running(lines(10)):
            recorder.wait_text(lines(10))
            wait_for(lambda: claimed(recorder), "caught up")
            recorder.report_status, recorder.behaviour = 503, lambda _: 503
            host.append(lines(1, 10))
            written_ms = behind.clock()
            behind.on_report = lambda report: early.extend(
                [report]
                if (report.stamped(behind.clock()).sources[0].caught_up_at_ms or 0) > written_ms
                else []
            )
            wait_for(
                lambda: len(behind.received) > 3 and len(behind.reports) > 10,
                "the other is asked, and told",
            )
            assert not early
            behind.behaviour = lambda _: 200
            wait_for(
                lambda: bool(behind.stored) and (behind.last.caught_up_at_ms or 0) > written_ms,
                "caught up there",
            )


def test_a_log_folder_that_is_not_mounted_is_not_caught_up_and_loses_nothing(
    host: Host, recorder: Recorder
) -> None:
    host.drain(lines(10))
    host.append(lines(10, 10))
    away = host.logs.rename(host.logs.with_name("away"))
    recorder.reports.clear()
    with host.running():
        wait_for(lambda: len(recorder.reports) > 10, "reports")
        assert not claimed(recorder)
        away.rename(host.logs)
        wait_for(lambda: claimed(recorder), "caught up once it is there")
    assert recorder.text() == lines(20)
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)


@pytest.mark.parametrize("pattern", ["lgos/*.log", "lgos/app.log", "lgos/**/app.log"])
def test_a_pattern_whose_folder_does_not_exist_holds_the_claim_back(
    host: Host, recorder: Recorder, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs.parent}/{pattern}"])]
    with host.running():
        wait_for(lambda: len(recorder.reports) > 10, "reports")
    assert not claimed(recorder)
    assert f"cannot scan {host.logs.parent}/lgos" in caplog.text


@pytest.mark.parametrize("pattern", ["*.log", "app.log", "*/app.log", "**/app.log"])
def test_a_readable_folder_in_which_nothing_matches_was_looked_at_and_that_is_said_once(
    host: Host, recorder: Recorder, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{host.logs}/{pattern}"])]
    with host.running():
        wait_for(lambda: claimed(recorder) and len(recorder.reports) > 5, "caught up")
    assert caplog.text.count("no file matches") == 1


def test_a_link_switched_while_the_agent_was_down_loses_nothing_of_its_old_target(
    host: Host, recorder: Recorder
) -> None:
    dated = host.logs.parent / "dated"
    dated.mkdir()
    host.append(lines(100), dated / "1.log")
    host.app.symlink_to(dated / "1.log")
    host.drain()
    host.append(lines(50, 100), dated / "1.log")
    host.append(lines(10, 500), dated / "2.log")
    host.app.unlink()
    host.app.symlink_to(dated / "2.log")
    summary = host.drain()
    assert recorder.files() == sorted([lines(150), lines(10, 500)])
    assert (summary.lost_bytes, summary.unknown_losses) == (0, 0)


def test_a_file_that_vanished_unread_does_not_hold_the_claim_back_for_ever(
    host: Host, recorder: Recorder
) -> None:
    host.once(lines(10))
    host.app.rename(host.logs.parent / "rotated away")
    recorder.reports.clear()
    with host.running():
        wait_for(
            lambda: claimed(recorder), "caught up: what it may have held is said to be unknown"
        )
        wait_for(lambda: recorder.last.unknown_losses == 1, "it is said")
    assert all(
        not s.caught_up_at_ms or s.unknown_losses for one in recorder.reports for s in one.sources
    )


def test_a_mount_point_left_empty_is_not_caught_up_and_loses_nothing(
    host: Host, recorder: Recorder
) -> None:
    """What is mounted there has another device number than the folder below it."""
    host.drain(lines(10))
    with sqlite3.connect(host.state / "checkpoint.sqlite") as db:
        db.execute("UPDATE files SET device = device + 7")
    db.close()
    away = host.app.rename(host.logs.parent / "on the other device")
    recorder.reports.clear()
    with host.running():
        wait_for(lambda: len(recorder.reports) > 10, "reports")
        assert not claimed(recorder)
        away.rename(host.app)
        host.append(lines(10, 10))
        recorder.wait_text(lines(20))
        wait_for(lambda: claimed(recorder), "caught up once it is there")
    assert (recorder.last.lost_bytes, recorder.last.unknown_losses) == (0, 0)
