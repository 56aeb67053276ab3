"""The watch: what begins and is over is told once, what is lost stands over restarts, and clusters
that are away are an alarm.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.unit.mirror.watch.test_judging import WELL, P

from hourmark.errors import Unavailable, UsageError
from hourmark.process.alarms import AlarmName
from hourmark.process.durable import write_durably
from hourmark_mirror.watch import watch_state_store
from hourmark_mirror.watch.alarms import AlarmLimits
from hourmark_mirror.watch.cli import format_watch_result, watch_result_to_json
from hourmark_mirror.watch.metrics import WATCHED, MirrorMetrics
from hourmark_mirror.watch.observation import (
    MirrorObservation,
    SampleResult,
    UnsampledRange,
    WatchState,
)
from hourmark_mirror.watch.watch_state_store import WATCH_STATE_FILE, WatchStateStore
from hourmark_mirror.watch.watcher import MirrorWatcher


class Played:
    """Looks that are played; `away`: the clusters do not answer."""

    def __init__(self) -> None:
        self.seen, self.away = WELL, False
        self.looked: Callable[[], object] = lambda: None

    def observe(self, before: WatchState) -> MirrorObservation:
        self.looked()
        if self.away:
            raise Unavailable("the central Kafka cluster did not answer")
        self.seen = dataclasses.replace(
            self.seen, now_ms=max(self.seen.now_ms, before.looked_ms) + 10_000
        )
        return self.seen


def watch(
    folder: Path, played: Played, clock: FakeClock | None = None
) -> tuple[MirrorWatcher, MirrorMetrics]:
    metrics = MirrorMetrics()
    return MirrorWatcher(
        played, WatchStateStore(folder), AlarmLimits(24.0, {}), metrics, clock or FakeClock()
    ), metrics


def alarms_of(metrics: MirrorMetrics) -> dict[str, float]:
    counts = {
        name: metrics.registry.get_sample_value("hourmark_mirror_alarms", {"name": name})
        for name in WATCHED
    }
    return {name: count for name, count in counts.items() if count}


def test_an_alarm_is_told_once_when_it_begins_with_what_to_do_and_once_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    played = Played()
    watching, metrics = watch(tmp_path, played)
    watching.observe()
    played.seen = dataclasses.replace(played.seen, remote_ids={}, remote_starts={}, remote_ends={})
    for _ in range(3):
        watching.observe()
    told = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1
    assert told[0].startswith(
        "ALARM mirror-remote-topic-missing: topic events.a has no remote topic"
    )
    assert told[0].endswith("(docs/operate/runbooks/mirror-remote-topic-missing.md)")
    assert alarms_of(metrics) == {AlarmName.REMOTE_MISSING: 1}
    played.seen = WELL
    watching.observe()
    assert caplog.messages[-1] == "resolved: mirror-remote-topic-missing of events.a"
    assert alarms_of(metrics) == {}


def test_a_loss_stands_over_restarts_until_it_is_accepted(tmp_path: Path) -> None:
    played = Played()
    watch(tmp_path, played)[0].observe()
    played.seen = dataclasses.replace(
        played.seen, ends={P: 600}, starts={P: 500}, positions={P: 600}
    )
    assert [a.name for a in watch(tmp_path, played)[0].observe().alarms] == [AlarmName.OVERTAKEN]
    assert [a.name for a in watch(tmp_path, played)[0].observe().alarms] == [AlarmName.OVERTAKEN]
    assert watch(tmp_path, played)[0].observe(accept=True).alarms == []
    assert watch(tmp_path, played)[0].observe().alarms == []


def test_clusters_that_are_away_end_nothing_and_are_an_alarm_within_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, clock, stopping = Played(), FakeClock(), threading.Event()
    watching, metrics = watch(tmp_path, played, clock)
    began_s, seen = clock.monotonic_s(), dict[float, dict[str, float]]()

    def waited(seconds: float) -> bool:
        clock.advance(seconds)
        at_s = clock.monotonic_s() - began_s
        seen[at_s] = alarms_of(metrics)
        played.away = 20 <= at_s < 100
        if at_s > 150:
            stopping.set()
        return stopping.is_set()

    monkeypatch.setattr(stopping, "wait", waited)
    watching.run(stopping)
    assert seen[60] == {}
    assert seen[80] == {AlarmName.UNWATCHED: 1}, "a minute after the cluster went away"
    assert seen[120] == {}


def test_what_the_accepting_look_finds_is_told_by_it_and_stands(tmp_path: Path) -> None:
    played = Played()
    watch(tmp_path, played)[0].observe()
    played.seen = dataclasses.replace(
        played.seen, ends={P: 600}, starts={P: 500}, positions={P: 600}
    )
    assert [a.name for a in watch(tmp_path, played)[0].observe(accept=True).alarms] == [
        AlarmName.OVERTAKEN
    ]
    assert [a.name for a in watch(tmp_path, played)[0].observe().alarms] == [AlarmName.OVERTAKEN]
    assert watch(tmp_path, played)[0].observe(accept=True).alarms == []


def test_a_loss_stands_over_a_restart_while_the_clusters_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    played, stopping = Played(), threading.Event()
    watch(tmp_path, played)[0].observe()
    played.seen = dataclasses.replace(
        played.seen, ends={P: 600}, starts={P: 500}, positions={P: 600}
    )
    watch(tmp_path, played)[0].observe()
    caplog.clear()
    played.away = True
    watching, metrics = watch(tmp_path, played)
    monkeypatch.setattr(stopping, "wait", lambda _: stopping.set())
    watching.run(stopping)
    assert alarms_of(metrics) == {AlarmName.OVERTAKEN: 1}
    assert [
        r.message[: len("ALARM mirror-overtaken")]
        for r in caplog.records
        if r.levelno == logging.ERROR
    ] == ["ALARM mirror-overtaken"]


def test_where_no_topic_is_verified_text_json_and_metrics_say_so_with_the_reason(
    tmp_path: Path,
) -> None:
    """Not `verified through now`, nor a lag of 0."""
    played = Played()
    watching, metrics = watch(tmp_path, played)

    def lag_s() -> float:
        return metrics.registry.get_sample_value("hourmark_mirror_verified_lag_seconds") or 0.0

    assert math.isnan(lag_s()), "before the first look"
    found = watching.observe()
    assert math.isnan(lag_s())
    assert list(format_watch_result("edge", found)) == [
        f"edge {'events.a':<40} not verified: no record was written since the first observation",
        "no topic of site edge verified by samples yet, 0 alarms",
    ]
    assert json.loads(json.dumps(watch_result_to_json("edge", found)))["unverified"] == {
        "events.a": "no record was written since the first observation"
    }
    assert watch_result_to_json("edge", found)["verified"] == {}
    played.seen = dataclasses.replace(played.seen, ends={P: 600})
    watching.observe()
    assert lag_s() == math.inf, "there are records of which none was compared"
    sample = SampleResult(UnsampledRange(100, 300), 40, played.seen.now_ms, None)
    played.seen = dataclasses.replace(played.seen, positions={P: 300}, samples={P: sample})
    assert (
        list(format_watch_result("edge", watching.observe()))[-1]
        == "1 topics of site edge verified by samples, 0 alarms"
    )
    assert lag_s() == 10.0


def test_two_looks_of_two_processes_take_turns(tmp_path: Path) -> None:
    played, other = Played(), Played()
    order: list[str] = []
    second = threading.Thread(target=lambda: watch(tmp_path, other)[0].observe())

    def while_it_looks() -> None:
        second.start()
        second.join(0.2)
        order.append("first")

    played.looked, other.looked = while_it_looks, lambda: order.append("second")
    watch(tmp_path, played)[0].observe()
    second.join(10)
    assert order == ["first", "second"]


def test_whoever_holds_the_memory_and_stands_still_is_waited_for_only_so_long_and_named(
    tmp_path: Path,
) -> None:
    """A `--once` that was stopped by Ctrl-Z: it would silence the watch for good."""
    watch(tmp_path, Played())[0].observe()
    other = WatchStateStore(tmp_path, timeout_s=0.0)
    with (
        WatchStateStore(tmp_path).locked(),
        pytest.raises(Unavailable, match=r"watch\.lock"),
        other.locked(),
    ):
        pass
    with other.locked() as before:
        assert before.looked_ms > 0


def test_on_a_full_disk_alarms_are_told_and_looks_go_on_from_each_other_and_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The mirror may have died of the same disk: it stands still, and that must be seen over
    several looks.
    """
    played, clock, stopping = Played(), FakeClock(), threading.Event()
    watching, metrics = watch(tmp_path, played, clock)
    watching.observe()
    played.seen = dataclasses.replace(played.seen, ends={P: 600})
    full = [True]

    def write(path: Path, content: bytes) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")
        write_durably(path, content)

    def waited(seconds: float) -> bool:
        clock.advance(seconds)
        looks.append(alarms_of(metrics))
        full[0] = len(looks) < 10
        if len(looks) == 12:
            stopping.set()
        return stopping.is_set()

    looks: list[dict[str, float]] = []
    monkeypatch.setattr(watch_state_store, "write_durably", write)
    monkeypatch.setattr(stopping, "wait", waited)
    watching.run(stopping)
    assert looks[9] == {AlarmName.TASK_STOPPED: 1, AlarmName.UNWATCHED: 1}
    assert looks[11] == {AlarmName.TASK_STOPPED: 1}, "the disk has room again"
    told = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(told) == 3, "two alarms, once each, and the end of one"
    assert (
        sum("watch.json cannot be written: No space left on device" in text for text in told) == 1
    )
    assert json.loads((tmp_path / WATCH_STATE_FILE).read_text())["looked_ms"] == played.seen.now_ms


def test_a_damaged_memory_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / WATCH_STATE_FILE).write_text("{")
    with pytest.raises(UsageError, match=r"watch\.json is damaged"):
        watch(tmp_path, Played())[0].observe()
