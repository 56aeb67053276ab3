"""The demo's declarations, settings, waiting and outcome."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner
from tests.support.clock import FakeClock
from tests.support.judged.webhdfs_server import serve

from hourmark.config.loading import Config, load_config
from hourmark.config.toml_text import render_toml
from hourmark.errors import Unavailable, UsageError
from hourmark.records.audit import AuditRecord, Promise
from hourmark.records.ranges import RangeId
from hourmark.rules.event_types import read_declarations
from hourmark_infra.components import Components, child_environment, wait_for
from hourmark_verify.demo import outcome
from hourmark_verify.demo.bucket_progress import (
    ClosingStallDetector,
    TypeClosingState,
    are_buckets_closed,
    closing_states,
)
from hourmark_verify.demo.cli import demo
from hourmark_verify.demo.configuration import (
    SERVER_LOG,
    TYPES,
    declarations_for_judge,
    demo_settings,
    write_declarations,
)
from hourmark_verify.demo.demo import lock_home, next_minute_ms, traffic_seconds
from hourmark_verify.demo.outcome import sum_audit_records
from hourmark_verify.demo.traffic import LiveLog, ScheduledLine
from hourmark_verify.demo.verdict import JudgeInputs, judge_until_settled, write_expectations
from hourmark_verify.judge.buckets import StoredBucket
from hourmark_verify.judge.marker import Marker
from hourmark_verify.judge.report import FileCount, FindingKind, JudgeReport
from hourmark_verify.judge.webhdfs import WebHdfsReader

_STACK = {
    "kafka": {"edge": {"bootstrap": "127.0.0.1:1,127.0.0.1:2", "replication_factor": 3}},
    "registry": {"url": "http://127.0.0.1:3"},
    "storage": {
        "root": "hdfs://127.0.0.1:4/hourmark",
        "webhdfs": "http://127.0.0.1:5",
        "user": 'a "b" \x7f',
    },
    "etl": {"scratch_dir": "/a b"},
    "service": {"port": 6},
    "tailer": {"state_dir": "/state", "service_urls": ["http://127.0.0.1:6"], "sources": []},
}


def test_the_declarations_are_valid_and_the_judge_knows_all_of_them(tmp_path: Path) -> None:
    write_declarations(tmp_path)
    types, sources, _ = read_declarations(tmp_path)
    assert {t.name for t in types} == {*TYPES, "dead-letters"}
    told_types, told_sources, limits = declarations_for_judge(tmp_path)
    assert limits == {"future_seconds": 900, "lateness_seconds": 7 * 86400}
    assert set(told_types) == set(TYPES)
    assert {name for source in told_sources.values() for name in source["type"]} == set(TYPES)
    assert {name for source in sources for name in source.types} == set(TYPES)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            (
                "[2026-11-21 01:00:25,123] INFO [Broker id=1] is (re)started "
                "(kafka.server.BrokerServer)"
            ),
            ("INFO", None, "[Broker id=1] is (re)started", "kafka.server.BrokerServer"),
        ),
        (
            "2026-11-21 01:00:25,123 WARN org.apache.hadoop.Foo$Bar: slow (1 s)",
            ("WARN", "org.apache.hadoop.Foo$Bar", "slow (1 s)", None),
        ),
        (
            "2026-11-21 01:00:25,123 INFO  [io.quarkus] (main) up",
            ("INFO", None, "[io.quarkus] (main) up", None),
        ),
        ("\tat java.lang.Thread.run(Thread.java:840)", None),
        ("", None),
    ],
)
def test_server_lines_are_taken_apart(
    tmp_path: Path, line: str, expected: tuple[str | None, ...] | None
) -> None:
    write_declarations(tmp_path)
    types = read_declarations(tmp_path).types
    pattern = next(t for t in types if t.name == SERVER_LOG).line.pattern
    assert pattern is not None
    match = re.fullmatch(pattern, line)
    assert (match and match.group("level", "category", "message", "logger")) == expected


def demo_config(folder: Path) -> Config:
    file = folder / "hourmark.toml"
    file.write_text(
        render_toml(demo_settings(_STACK, folder / "logs", folder / "sources", folder / "types"))
    )
    return load_config(file)


def test_the_settings_are_the_stack_s_with_minutes_and_sources(tmp_path: Path) -> None:
    config = demo_config(tmp_path)
    assert config.parsing.bucket_seconds == 60
    assert config.storage.user == 'a "b" \x7f'
    assert config.etl.scratch_dir == Path("/a b")
    assert {source.name for source in config.tailer.sources} == {
        "server-logs",
        "named-lines",
        "app-events",
    }
    assert str(tmp_path / "logs" / "edge-*.log") in config.tailer.sources[0].paths


def test_no_component_s_own_log_is_tailed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    components = Components(tmp_path, tmp_path / "x", logs, FakeClock())
    for name in ("service", "tailer", "etl"):
        components.log(name).touch()
    tailed = [
        p
        for source in demo_config(tmp_path).tailer.sources
        for p in source.paths
        if Path(p).parent == logs
    ]
    assert not [p for pattern in tailed for p in logs.glob(Path(pattern).name)]


def test_settings_of_the_shell_do_not_reach_the_components(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOURMARK_SERVICE__PORT", "1")
    assert "HOURMARK_SERVICE__PORT" not in child_environment()
    assert child_environment()["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("second", "buckets", "span"),
    [(0, 3, 170), (30, 3, 140), (45, 3, 125), (46, 3, 184), (59, 1, 51), (5, 1, 45)],
)
def test_the_span_covers_so_many_minutes(second: int, buckets: int, span: float) -> None:
    now_ms = 1_800_000_000_000 + second * 1000
    assert traffic_seconds(now_ms, buckets) == span
    end_ms = now_ms + span * 1000
    assert (end_ms // 60_000) - (now_ms // 60_000) >= buckets - 1
    assert next_minute_ms(int(end_ms)) - end_ms == 10_000


def bucket(minute: int, events: int, grade: Literal["proved", "forced"] = "proved") -> StoredBucket:
    return StoredBucket(
        type="t",
        path=f"t/date=1970-01-01/hour=00/minute={minute:02d}",
        start_ms=minute * 60_000,
        end_ms=(minute + 1) * 60_000,
        # the rest is not looked at
        marker=Marker.model_construct(grade=grade, events=events),  # type: ignore[call-arg]
        blake2b="",
    )


def test_empty_buckets_and_other_grades_do_not_count_but_move_the_end() -> None:
    found = closing_states([bucket(0, 5), bucket(1, 0), bucket(2, 7), bucket(3, 7, "forced")])
    assert found == {"t": TypeClosingState(2, 240_000, "1970-01-01T00:02")}
    assert are_buckets_closed(found, {"t": 2}, 240_000)
    assert not are_buckets_closed(found, {"t": 3}, 240_000)
    assert not are_buckets_closed(found, {"t": 2}, 240_001)
    assert not are_buckets_closed(found, {"t": 2, "other": 0}, 240_000)


def test_closing_that_stands_still_is_told_from_a_slow_one() -> None:
    clock = FakeClock()
    progress = ClosingStallDetector(clock)
    assert progress.update({})
    clock.advance(100)
    assert not progress.update({})
    assert progress.stalled_s == 100
    assert progress.update({"t": TypeClosingState(1, 60_000)})
    assert progress.stalled_s == 0


def test_waiting_ends_with_the_condition_with_a_fault_or_with_what_was_awaited() -> None:
    clock, polls = FakeClock(), iter([False, False, True])
    wait_for(lambda: next(polls), "it", 10, clock, lambda: None)
    with pytest.raises(Unavailable, match="timed out after 5 s waiting for it"):
        wait_for(lambda: False, "it", 5, clock, lambda: None)

    def died() -> None:
        raise Unavailable("the etl has ended")

    with pytest.raises(Unavailable, match="etl has ended"):
        wait_for(lambda: False, "it", 5, clock, died)


def test_a_component_that_dies_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    from hourmark.clock import SystemClock

    components = Components(tmp_path, tmp_path / "missing.toml", tmp_path / "logs", SystemClock())
    components.start("service")

    def dead() -> bool:
        try:
            components.check()
        except Unavailable as error:
            assert "service exited unexpectedly" in str(error) and "missing.toml" in str(error)
            return True
        return False

    try:
        wait_for(dead, "its end", 30, SystemClock(), lambda: None)
    finally:
        components.stop_all()


def test_two_demos_of_one_home_do_not_mix(tmp_path: Path) -> None:
    with lock_home(tmp_path), pytest.raises(UsageError, match="another demo"), lock_home(tmp_path):
        pass
    with lock_home(tmp_path):
        pass


def record(range_id: int, count: int) -> AuditRecord:
    promised = (
        Promise("lines", 0, count, 1),
        Promise("lines", 60, 1, 1),
        Promise("dead-letters", 0, 1, 1),
    )
    return AuditRecord(
        range_id=RangeId(range_id.to_bytes(8, "big")),
        kind="range",
        host_id="h",
        host_name="h",
        file_id="f",
        generation=0,
        start=0,
        end=1,
        observed_at_ms=0,
        rules="r",
        source="s",
        path="p",
        lines=count + 2,
        promised=promised,
    )


def test_a_range_sent_twice_was_acknowledged_once() -> None:
    assert sum_audit_records([record(1, 5), record(2, 7), record(1, 5)]) == {
        "lines": 14,
        "dead-letters": 2,
    }


def report(**counts: int) -> JudgeReport:
    made = JudgeReport()
    for name, count in counts.items():
        made.counts[FindingKind(name)] = count
    of = made.type_count("lines")
    of.expected, of.in_buckets, of.late, of.dead_letters, of.grades = 100, 99, 2, 1, {"proved": 3}
    of = made.type_count("(none)")
    of.dead_letters = 4
    made.type_count("dead-letters").in_buckets = 5
    made.files.append(
        FileCount(path="/s/named-lines/1-a.log", lines=100, in_buckets=99, dead_letters=1)
    )
    made.files.append(
        FileCount(path="/s/app-events/player.log", lines=1000, in_buckets=5, dead_letters=995)
    )
    return made


def test_the_outcome_has_the_documented_form(tmp_path: Path) -> None:
    shown = outcome.as_json(
        report(), {"lines": 99, "dead-letters": 5}, demo_config(tmp_path), 271.234
    )
    assert list(shown) == [
        "types",
        "lost",
        "doubled",
        "altered",
        "buckets_root",
        "webhdfs",
        "bootstrap",
        "registry",
        "seconds",
    ]
    assert set(shown["types"]) == {
        "lines",
        "server-log",
        "track-played",
        "ad-shown",
        "dead-letters",
    }
    assert shown["types"]["lines"] == {
        "acknowledged": 99,
        "in_buckets": 99,
        "late": 2,
        "duplicates_removed": 0,
        "dead_letters": 1,
        "lost": 0,
        "grades": {"proved": 3, "timed_out": 0, "forced": 0},
    }
    assert shown["types"]["dead-letters"]["dead_letters"] == 4
    assert shown["bootstrap"] == "127.0.0.1:1,127.0.0.1:2"
    assert "lines" in outcome.as_text(shown)


@pytest.mark.parametrize("kind", [kind.value for kind in FindingKind])
def test_any_finding_fails_the_demo_and_shows_in_the_outcome(tmp_path: Path, kind: str) -> None:
    found = report(**{kind: 2})
    assert outcome.find_faults(found, {}) == [f"2 {kind}"]
    shown = outcome.as_json(found, {}, demo_config(tmp_path), 1)
    assert shown["lost"] + shown["doubled"] + shown["altered"] == 2


def test_more_acknowledged_than_in_buckets_fails_the_demo() -> None:
    assert outcome.find_faults(report(), {"lines": 99}) == []
    assert outcome.find_faults(report(), {"lines": 100}) == [
        "100 events of lines were acknowledged, 99 are in buckets"
    ]


def test_nothing_compared_fails_the_demo() -> None:
    assert outcome.find_faults(JudgeReport(), {}) == ["nothing was compared"]


def test_the_judge_is_asked_again_only_while_something_is_missing(tmp_path: Path) -> None:
    log = LiveLog(
        tmp_path / "named-lines" / "1-a.log",
        "lines",
        iter([ScheduledLine(0.0, lambda _: b"a line", True)]),
        FakeClock(),
    )
    log.write_due_lines(1.0)
    log.close()
    write_declarations(tmp_path / "types")
    with serve(tmp_path) as address:
        config = demo_config(tmp_path)
        config = config.model_copy(
            update={"storage": config.storage.model_copy(update={"webhdfs": address, "user": "me"})}
        )
        known = write_expectations(
            tmp_path / "e.json",
            config,
            JudgeInputs(
                logs=[log],
                server_sizes={},
                host_id="0" * 32,
                rules=["1-x"],
                span_ms=(0, 1),
                posted=[],
            ),
        )
        hdfs = WebHdfsReader(address, "me")
        asked: list[int] = []

        def more(found: JudgeReport) -> bool:
            asked.append(found.counts[FindingKind.LOST])
            return len(asked) < 3

        verdict = judge_until_settled(known, hdfs, more)
        hdfs.close()
    assert asked == [1, 1, 1]
    assert verdict.counts[FindingKind.LOST] == 1
    assert verdict.counts[FindingKind.SOURCE] == 0
    assert json.loads((tmp_path / "e.json").read_text())["written"][0]["broken"] == [0]


def test_files_without_lines_before_them_are_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    result = CliRunner().invoke(demo, [str(tmp_path / "a")])
    assert isinstance(result.exception, UsageError)
    assert CliRunner().invoke(demo, ["--lines", str(tmp_path / "missing")]).exit_code == 2


def test_rendered_settings_are_toml() -> None:
    document = {
        "a": {"b": 1, "c": {"d": ["x", "y"]}, "rows": [{"n": "1"}, {"n": "2"}]},
        "empty": {"list": []},
        "with dots": {"spark.a.b": "c"},
    }
    assert tomllib.loads(render_toml(document)) == document
