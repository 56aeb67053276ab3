"""With many files full looks are rare, and claims with them; lines are sent soon all the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder
from tests.support.waiting import wait_for

from hourmark.config.groups import TailedSource
from hourmark_producer.tailer import Tailer
from hourmark_producer.watch import pace
from hourmark_producer.watch.inotify import InotifyWatcher
from hourmark_producer.watch.pace import ScanPace


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Full looks are as rare as with very many files, and what changed a moment ago is forgotten at
    once.
    """
    monkeypatch.setattr(pace, "SCAN_SHARE", 1e-9)
    monkeypatch.setattr(pace, "SLOWEST_S", 3600.0)
    monkeypatch.setattr(pace, "RECENT_S", 0.0)
    return monkeypatch


def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InotifyWatcher, "_opened", lambda _: None)


def is_paced(tailer: Tailer) -> bool:
    return tailer.pace.is_slow and not tailer.pace.is_due()


def settled(recorder: Recorder, tailer: Tailer) -> None:
    """Full looks are over for now: all was claimed, and nothing asks for another."""
    wait_for(
        lambda: bool(recorder.reports) and recorder.last.caught_up_at_ms is not None, "caught up"
    )
    wait_for(lambda: is_paced(tailer), "full looks are rare")


def looks(
    monkeypatch: pytest.MonkeyPatch, cost_s: float, *, is_urgent: bool = False
) -> tuple[ScanPace, FakeClock]:
    """A pace after a look that took so much CPU."""
    clock, cpu = FakeClock(), iter([0.0, 0.0, cost_s])
    monkeypatch.setattr(time, "thread_time", lambda: next(cpu))
    made = ScanPace(clock, 0.5)
    made.begin()
    made.end(is_urgent=is_urgent)
    return made, clock


@pytest.mark.parametrize(
    ("cost_s", "is_urgent", "due_s"),
    [
        (0.0, False, 0.5),
        (0.001, False, 0.5),
        (0.03, False, 10.0),
        (60.0, False, 25.0),
        (0.03, True, 0.5),
        (1.0, True, 10.0),
        (60.0, True, 25.0),
    ],
)
def test_full_looks_take_their_share_and_no_more(
    monkeypatch: pytest.MonkeyPatch, cost_s: float, is_urgent: bool, due_s: float
) -> None:
    made, clock = looks(monkeypatch, cost_s, is_urgent=is_urgent)
    clock.advance(due_s - 0.3)
    assert not made.is_due()
    clock.advance(0.3)
    assert made.is_due()
    assert made.is_slow == (due_s > 0.5)


@pytest.mark.parametrize(("cost_s", "due_s"), [(0.0, 0.5), (0.03, 2.0), (60.0, 5.0)])
def test_one_that_is_wanted_comes_after_a_fifth_of_that(
    monkeypatch: pytest.MonkeyPatch, cost_s: float, due_s: float
) -> None:
    made, clock = looks(monkeypatch, cost_s)
    made.request_scan()
    clock.advance(due_s - 0.3)
    assert not made.is_due()
    clock.advance(0.3)
    assert made.is_due()


def test_a_hint_is_enough_to_send_a_line(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch
) -> None:
    with host.running(lines(10)) as tailer:
        recorder.wait_text(lines(10))
        settled(recorder, tailer)
        for number in range(10, 13):
            host.append(lines(1, number))
            recorder.wait_text(lines(number + 1))


def test_a_hint_at_what_a_link_leads_to_is_enough(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch
) -> None:
    target = host.logs.parent / "elsewhere" / "pod.log"
    target.parent.mkdir()
    target.write_bytes(lines(10))
    host.app.symlink_to(target)
    with host.running() as tailer:
        recorder.wait_text(lines(10))
        settled(recorder, tailer)
        host.append(lines(1, 10), target)
        recorder.wait_text(lines(11))


def test_what_changed_a_moment_ago_is_followed_without_any_hint(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch
) -> None:
    deaf(paced)
    paced.setattr(pace, "RECENT_S", 60.0)
    with host.running(lines(10)) as tailer:
        recorder.wait_text(lines(10))
        settled(recorder, tailer)
        host.append(lines(1, 10))
        recorder.wait_text(lines(11))
        assert is_paced(tailer)


def test_without_hints_polling_finds_everything(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch
) -> None:
    deaf(paced)
    paced.setattr(pace, "SLOWEST_S", 0.5)
    with host.running(lines(10)) as tailer:
        recorder.wait_text(lines(10))
        wait_for(lambda: tailer.pace.is_slow, "full looks are rare")
        host.append(lines(10, 10))
        recorder.wait_text(lines(20))
        host.append(lines(10, 50), host.logs / "app.log.new")
        recorder.wait_text(lines(30))


@pytest.mark.parametrize("step", ["new", "rotated", "deleted"])
def test_a_name_that_changes_brings_a_full_look_forward(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch, step: str
) -> None:
    paced.setattr(pace, "SLOWEST_S", 60.0)
    paced.setattr(pace, "_EARLIER", 0.005)
    with host.running(lines(10)) as tailer:
        recorder.wait_text(lines(10))
        settled(recorder, tailer)
        began = time.monotonic()
        if step == "new":
            host.append(lines(10, 10), host.logs / "app.log.new")
        elif step == "rotated":
            host.app.rename(host.logs / "app.log.1")
            host.append(lines(10, 10))
        else:
            host.app.unlink()
            host.append(lines(10, 10))
        recorder.wait_text(lines(20))
        assert time.monotonic() - began < 30.0, "long before the next one was due"


def test_a_claim_rests_on_a_full_look_and_not_on_a_glance(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch
) -> None:
    with host.running(lines(10)) as tailer:
        recorder.wait_text(lines(10))
        settled(recorder, tailer)
        wait_for(lambda: recorder.last.pending_bytes == 0, "all is read")
        claimed = recorder.last.caught_up_at_ms
        host.append(lines(1, 10))
        recorder.wait_text(lines(11))
        said = len(recorder.reports)
        wait_for(lambda: len(recorder.reports) > said + 3, "reports go on")
        assert recorder.last.caught_up_at_ms == claimed


def test_what_a_glance_saw_is_known_after_a_kill(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch
) -> None:
    """Written and seen while the service is down, truncated while the tailer is: lost, and said to
    be.
    """
    with host.running(lines(10)) as tailer:
        recorder.wait_text(lines(10))
        settled(recorder, tailer)
        recorder.behaviour = lambda _: 503
        host.append(lines(10, 10))
        wait_for(lambda: recorder.last.pending_bytes > 0, "it was seen")
        host.append(lines(10, 20))
        wait_for(
            lambda: recorder.last.pending_bytes == len(lines(20, 10)),
            "the rest was seen, and is not spooled",
        )
        assert is_paced(tailer)
    host.app.write_bytes(b"")
    recorder.behaviour = lambda _: 200
    host.drain(lines(1, 100))
    assert recorder.last.lost_bytes == len(lines(10, 20))


def test_a_drain_does_not_wait_for_the_pace(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch
) -> None:
    host.append(lines(10))
    host.append(lines(10, 10), host.logs / "app.log.1")
    assert host.drain().goodbye
    assert len(recorder.text()) == len(lines(20))


def test_files_that_wait_for_a_descriptor_do_not_wait_for_the_pace(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch
) -> None:
    host.open_files_max = 8
    for number in range(40):
        host.append(lines(10, 10 * number), host.logs / f"app.log.{number}")
    with host.running():
        recorder.wait_text(lines(400))


def test_a_folder_that_is_not_there_yet_is_found_when_it_comes(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its source is not caught up until then, and looked at again after a fifth of the pace."""
    paced.setattr(pace, "SLOWEST_S", 0.4)
    late = tmp_path / "late"
    host.settings["sources"] = [TailedSource(name="app", paths=[f"{late}/*.log"])]
    with host.running():
        wait_for(lambda: len(recorder.reports) > 3, "reports")
        assert recorder.last.caught_up_at_ms is None
        late.mkdir()
        host.append(lines(10), late / "a.log")
        recorder.wait_text(lines(10))


def test_what_is_pending_is_told_between_full_looks_as_if_all_were_asked(
    host: Host, recorder: Recorder, paced: pytest.MonkeyPatch
) -> None:
    def all_told() -> bool:
        return tailer.pending.by_source()["app"] == sum(file.pending_bytes for file in tailer.files)

    host.append(b"no end", host.logs / "app.log.unterminated")
    for number in range(20):
        host.append(lines(10, 10 * number), host.logs / f"app.log.{number}")
    with host.running() as tailer:
        settled(recorder, tailer)
        assert all_told() and tailer.pending.by_source()["app"] == len(b"no end")
        recorder.behaviour = lambda _: 503
        for number in range(5):
            host.append(lines(10, 1000), host.logs / f"app.log.{number}")
            host.append(b"begun", host.logs / f"app.log.{number + 5}")
        more = len(b"no end") + 5 * len(lines(10, 1000)) + 5 * len(b"begun")
        wait_for(lambda: tailer.pending.by_source()["app"] == more, "all of it is told")
        assert all_told() and is_paced(tailer)
        recorder.behaviour = lambda _: 200
        wait_for(
            lambda: tailer.pending.by_source()["app"] == len(b"no end") + 5 * len(b"begun"),
            "what has no line end stays",
        )
        assert all_told() and is_paced(tailer)
