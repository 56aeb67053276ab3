"""What `hourmark run` is made of: settings over the stack's, one log of several, components started
again, buckets awaited.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.groups import (
    BucketSettings,
    TailedSource,
    TypesSettings,
    escape_log_path,
)
from hourmark.config.loading import Config
from hourmark.errors import ConfigError, UsageError
from hourmark.records.hours import Hour
from hourmark_infra.components import Components, child_environment
from hourmark_infra.running.cli import describe_outcome, find_new_logs, init_options, run
from hourmark_infra.running.closed_buckets import (
    buckets_closed_since,
    describe_buckets,
    find_open_hour,
    format_reasons,
    next_hours,
    unclosed_types,
)
from hourmark_infra.running.run import (
    Run,
    RunOutcome,
    describe_missing_files,
    first_hour_options,
    merge_settings,
    names_kafka,
    run_and_wait,
)
from hourmark_infra.running.stack_holder import record_applied_configuration
from hourmark_infra.running.supervisor import PAUSE_MAX_S, STEADY_S, Supervisor
from hourmark_infra.stack.control import LocalStack
from hourmark_infra.stack.process import Process, spawn

STACK = {
    "kafka": {"edge": {"bootstrap": "x:1"}},
    "storage": {"root": "hdfs://n/hourmark", "user": "u"},
    "tailer": {"state_dir": "/s"},
}


def row(of: str, hour: str, *, open_: bool = False, events: int = 1) -> dict[str, Any]:
    state = {"state": "open", "waits_for": "the mirror", "events": None, "grade": None}
    return {
        "type": of,
        "hour": hour,
        **(state if open_ else {"grade": "proved", "events": events, "state": "closed"}),
    }


def test_each_setting_is_the_users_and_the_rest_the_stacks() -> None:
    own = {
        "parsing": {"bucket_seconds": 60},
        "tailer": {"sources": [{"name": "a"}]},
        "log_level": "debug",
    }
    made = merge_settings(STACK, own)
    assert made["tailer"] == {"state_dir": "/s", "sources": [{"name": "a"}]}
    assert (made["parsing"], made["log_level"], made["kafka"]) == (
        {"bucket_seconds": 60},
        "debug",
        STACK["kafka"],
    )
    assert merge_settings(STACK, {"storage": {"root": "file:///b"}})["storage"] == {
        "root": "file:///b"
    }
    assert not names_kafka(own)
    assert names_kafka(STACK)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("2026-11-21T05:00", ("--first-hour", "2026-11-21T05:00")),
        ("2026-11-21T04:59", ("--first-hour", "2026-11-21T09:59")),
        ("2026-11-21T05:00:07", ()),
        (None, ("--first-hour", "2026-11-21T09:59")),
    ],
    ids=["300 minutes ago", "a minute more", "no minute", "none"],
)
def test_new_types_begin_where_it_is_configured_while_that_is_not_long_ago(
    first: str | None, said: tuple[str, ...]
) -> None:
    config = Config(
        types=TypesSettings(first_hour=first), parsing=BucketSettings(bucket_seconds=60)
    )
    now = Hour.parse("2026-11-21T10:00", 60)
    assert first_hour_options(config, now.start_s * 1000 + 59_999) == said


def test_the_bucket_length_of_a_new_root_is_chosen_by_the_lines_with_once_alone() -> None:
    assert init_options(once=True, is_new=True, yes=True) == ["--yes"]
    assert init_options(once=False, is_new=True, yes=False) == ["--bucket-seconds", "60"]
    assert init_options(once=False, is_new=False, yes=True) == ["--yes"], "it is fixed"


def test_files_that_are_read_already_are_not_proposed_again() -> None:
    settings = """
[[tailer.sources]]
name = "app"
paths = ["/var/log/app.log"]
"""
    said: list[str] = []
    logs = (Path("/var/log/app.log"), Path("/var/log/other.log"))
    assert find_new_logs(logs, settings, said.append) == logs[1:]
    assert said == [
        "/var/log/app.log is in the configuration already, as source app: lines that were not "
        "delivered before are delivered"
    ]
    assert find_new_logs([Path("/var/log/new/../app.log")], settings, said.append) == ()
    assert find_new_logs(logs, "", said.append) == logs
    assert find_new_logs(logs, "[", said.append) == logs, "`hourmark init` reports the mistake"


def test_a_file_that_a_source_excludes_is_not_read_by_it(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("x\n")
    (tmp_path / "app.debug").write_text("x\n")
    (tmp_path / "link.log").symlink_to("app.debug")
    settings = f"""
[[tailer.sources]]
name = "app"
paths = ["{tmp_path}/*"]
exclude = ["*.debug", "{tmp_path}/link.*"]
"""
    said: list[str] = []
    logs = [tmp_path / "app.log", tmp_path / "app.debug"]
    assert find_new_logs(logs, settings, said.append) == (tmp_path / "app.debug",)
    assert len(said) == 1 and "source app" in said[0]
    gone = settings.replace("/*", "/gone.debug")
    assert find_new_logs([tmp_path / "gone.debug"], gone, said.append) == (tmp_path / "gone.debug",)


def test_a_source_that_excludes_all_its_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "app.debug").write_text("x\n")
    source = TailedSource(name="app", paths=[f"{tmp_path}/*"], exclude=["*.debug"])
    assert [*describe_missing_files([source])] == [
        f"source app: exclude (*.debug) leaves out every file that matches {tmp_path}/*, so nothing "
        "of it is delivered"
    ]


class RegisteredFirst(Exception):
    """Servers would be started now."""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The calls of commands until servers are started or types applied, which fails."""
    calls: list[tuple[str, ...]] = []

    def query_json(self: Components, *arguments: str, seconds: float) -> Any:
        calls.append(arguments)
        settings = tomllib.loads(self.config.read_text())
        assert settings["tailer"]["state_dir"] and settings["tailer"]["sources"], "it can be run"
        return {"rotated": {"/x/a.log": "/x/a.log.1"}, "missing": ["/x/b.log"]}

    def started(*_: object, **__: object) -> None:
        raise RegisteredFirst

    monkeypatch.setattr(Components, "query_json", query_json)
    monkeypatch.setattr(Components, "run_repeatable", started)
    monkeypatch.setattr(LocalStack, "up", started)
    monkeypatch.setattr("hourmark_infra.running.run.export_java_home", lambda: None)
    return calls


def written_configuration(folder: Path, *, has_kafka: bool) -> Path:
    file = folder / "hourmark.toml"
    (folder / "types").mkdir(parents=True)
    (folder / "types" / "sources.toml").touch()
    kafka = '[kafka.edge]\nbootstrap = "x:1"\n' if has_kafka else ""
    state = f'state_dir = "{folder}/tailer"\n' if has_kafka else ""
    file.write_text(
        f'{kafka}[types]\ndir = "{folder}/types"\n[tailer]\n{state}'
        '[[tailer.sources]]\nname = "a"\npaths = ["/x/a.log"]\n'
    )
    (folder / "named-files.json").write_text("[]")
    return file


@pytest.mark.parametrize("has_kafka", [True, False])
def test_log_files_are_registered_before_anything_is_started(
    tmp_path: Path, registered: list[tuple[str, ...]], *, has_kafka: bool
) -> None:
    said: list[str] = []
    file = written_configuration(tmp_path / "pipeline", has_kafka=has_kafka)
    with pytest.raises(RegisteredFirst):
        Run(tmp_path / "home", file, SystemClock(), said.append).run_once()
    named = file.parent / "named-files.json"
    assert registered == [("tail", "register", "--named", str(named))]
    assert not named.exists(), "a run after `hourmark purge` begins with the present files"
    told = "\n".join(said)
    assert "/x/a.log was rotated after" in told and "delivered from /x/a.log.1" in told
    assert "/x/b.log was rotated or deleted" in told


def test_log_files_are_not_registered_with_the_tailer_of_another_configuration(
    tmp_path: Path, registered: list[tuple[str, ...]]
) -> None:
    home = tmp_path / "home"
    file, other = (
        written_configuration(tmp_path / name, has_kafka=False) for name in ("pipeline", "other")
    )
    (home / "stack").mkdir(parents=True)
    (home / "stack" / "hourmark.toml").touch()
    record_applied_configuration(home, other)
    with pytest.raises(RegisteredFirst):
        Run(home, file, SystemClock(), print).run_once()
    assert registered == []
    assert (file.parent / "named-files.json").exists()


def test_sources_without_a_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "there.log").write_text("x\n")
    (tmp_path / "odd[1].log").write_text("x\n")
    sources = [
        TailedSource(name="there", paths=[f"{tmp_path}/*.log", f"{tmp_path}/gone.log"]),
        TailedSource(name="odd", paths=[escape_log_path(tmp_path / "odd[1].log")]),
        TailedSource(name="gone", paths=[f"{tmp_path}/gone.log", f"{tmp_path}/x/*.log"]),
        TailedSource(name="journal", input="journald"),
    ]
    assert [*describe_missing_files(sources)] == [
        f"source gone: no file matches {tmp_path}/gone.log, {tmp_path}/x/*.log now, so nothing of it "
        "is delivered"
    ]


def test_a_type_is_closed_once_its_next_hour_is_a_later_one() -> None:
    rows = [
        row("a", "2026-11-21T05:00"),
        row("a", "2026-11-21T05:01", open_=True),
        row("b", "2026-11-21T05:02", open_=True),
    ]
    assert unclosed_types(rows, ["a", "b"], "2026-11-21T05:00") == {}
    assert unclosed_types(rows, ["a", "b"], "2026-11-21T05:01") == {
        "a": "2026-11-21T05:01: the mirror"
    }


def test_types_that_wait_for_the_same_are_told_together() -> None:
    awaited = {"a": "05:01: the mirror", "b": "05:02: its end", "c": "05:01: the mirror"}
    assert format_reasons(awaited) == "a, c 05:01: the mirror; b 05:02: its end"
    assert format_reasons({}) == "all are closed"


def test_of_many_types_and_reasons_the_most_frequent_are_told() -> None:
    awaited = {
        **{f"type-{n:03}": "05:01: staging" for n in range(200)},
        **{name: f"05:02: reason {name}" for name in "abcd"},
    }
    assert format_reasons(awaited) == (
        "type-000, type-001, type-002, type-003, type-004 and 195 more 05:01: staging; "
        "a 05:02: reason a; b 05:02: reason b; 2 more types for other reasons"
    )


def outcome(**more: Any) -> RunOutcome:
    tailed: dict[str, Any] = {"dead_letter_reasons": {}}
    return RunOutcome(
        **{"seconds": 7.2, "tailed": tailed, "buckets": [], "config": Path("c.toml"), **more}
    )


def test_dead_letters_are_told_with_their_reasons_and_the_next_step() -> None:
    tailed = {"dead_letter_reasons": {"app": {"no_time": 2, "bad_json": 1000}}}
    (line, *_) = describe_outcome(outcome(tailed=tailed))
    assert line == (
        "source app: 1,002 lines could not be parsed (bad_json 1,000, no_time 2); "
        "`hourmark dead-letters show` names the reason of each"
    )


def test_losses_are_told_with_their_files_and_the_next_step() -> None:
    tailed = {
        "dead_letter_reasons": {},
        "lost_bytes": 5000,
        "unknown_losses": 1,
        "lost_files": ["/x/app.log", "/x/b.log"],
    }
    lines = [*describe_outcome(outcome(tailed=tailed))]
    assert lines[0] == (
        "lost in this and earlier runs: 5,000 bytes, and possibly more on 1 occasion, by deletion or "
        "truncation before they were read, in /x/app.log, /x/b.log; `hourmark tail status --config "
        "c.toml` shows when"
    )
    assert "after 7 s every line that was read is where" in lines[1], "not every line at all"


def test_a_bucket_that_was_not_awaited_is_named() -> None:
    (line, *_) = describe_outcome(outcome(open_hour="2026-11-21T05"))
    assert line == (
        "after 7 s every line is where an earlier run delivered it, or in the bucket "
        "2026-11-21T05, which is still open: the next `hourmark run --once` after its end closes "
        "it; to see the content:"
    )


def of_ledger(of: str, staged: str | None) -> dict[str, Any]:
    return {**row(of, "2026-11-21T06", open_=True), "staged_hour": staged}


BEFORE = [
    {"type": of, "last_hour": "T", "next_hour": "2026-11-21T05", "next_state": "open"}
    for of in ("a", "b")
]
CLOSED = [row("a", "2026-11-21T05", events=3), row("b", "2026-11-21T05", events=0)]


def test_no_bucket_is_open_where_each_type_closed_one_and_nothing_else_is_staged() -> None:
    nothing = [of_ledger("a", None), of_ledger("b", None)]
    assert find_open_hour("2026-11-21T06", BEFORE, CLOSED, nothing) is None
    for staged, told in (
        ("2026-11-21T03", "2026-11-21T06"),
        ("2026-11-21T06", "2026-11-21T06"),
        ("2026-11-21T07", "2026-11-21T07"),
    ):
        rows = [of_ledger("a", None), of_ledger("b", staged)]
        assert find_open_hour("2026-11-21T06", BEFORE, CLOSED, rows) == told


def test_a_line_that_may_not_be_staged_may_be_in_the_open_bucket() -> None:
    nothing = [of_ledger("a", None), of_ledger("b", None)]
    hour = "2026-11-21T06"
    assert find_open_hour(hour, BEFORE, CLOSED[:1], nothing) == hour, "b closed nothing"
    sealed = [BEFORE[0], {**BEFORE[1], "next_state": "sealed"}]
    assert find_open_hour(hour, sealed, CLOSED, nothing) == hour, "b may be as it was sealed"
    earlier = [{**BEFORE[0], "next_hour": hour}, BEFORE[1]]
    assert find_open_hour(hour, earlier, CLOSED, nothing) == hour, "a was closed before"


def test_what_says_nothing_is_not_closed() -> None:
    assert unclosed_types([], ["a"], "2026-11-21T05:00") == {"a": "the ledger names no next hour"}
    assert unclosed_types([row("a", "2026-11-21T05:00")], ["a"], "2026-11-21T05:00") == {
        "a": "the ledger names no next hour"
    }


def test_the_buckets_of_a_run_are_those_that_were_open_when_it_began() -> None:
    before = next_hours([{"type": "a", "last_hour": "05:00", "next_hour": "05:01"}])
    after = [
        row("a", "05:00", events=3),
        row("a", "05:01", events=2),
        row("a", "05:02", events=0),
        row("a", "05:03", open_=True),
    ]
    assert [found["hour"] for found in buckets_closed_since(after, before)] == ["05:01"]


def test_buckets_of_a_type_that_was_applied_meanwhile_are_told_too() -> None:
    rows = [row("new", "05:00", events=3)]
    assert buckets_closed_since(rows, {}) == rows


def test_back_filled_buckets_of_a_type_that_had_closed_nothing_are_told_too() -> None:
    before = next_hours([{"type": "a", "last_hour": None, "next_hour": "2026-11-21T05"}])
    rows = [row("a", "2005-06-03T15", events=3)]
    assert buckets_closed_since(rows, before) == rows


class Short(Components):
    """Components that end at once, unless they are to last."""

    lasts = False
    starts = 0

    def start(self, name: str) -> None:
        self.starts += 1
        program = [sys.executable, "-c", "import time; time.sleep(300)" if self.lasts else ""]
        started = spawn(program, {}, self._mark(name), self.log(name))
        self.running[name] = started
        if not self.lasts:
            while _alive(started):
                pass


def _alive(process: Process) -> bool:
    from hourmark_infra.stack.process import is_alive

    return is_alive(process)


def test_what_ends_is_started_again_after_pauses_that_grow_and_shrink(tmp_path: Path) -> None:
    clock, said = FakeClock(), list[str]()
    components = Short(tmp_path, tmp_path / "hourmark.toml", tmp_path, clock)
    supervisor = Supervisor(components, clock, said.append)
    supervisor.start(["etl"])
    for pause_s in (2, 4, 8, 16, 32, PAUSE_MAX_S, PAUSE_MAX_S):
        supervisor.poll()
        assert f"again in {pause_s:.0f} s" in said[-1]
        started = components.starts
        clock.sleep(pause_s - 0.5)
        supervisor.poll()
        assert components.starts == started
        clock.sleep(0.5)
        supervisor.poll()
        assert components.starts == started + 1
    clock.sleep(STEADY_S)
    supervisor.poll()
    assert "again in 1 s" in said[-1]
    supervisor.stop("etl")
    started = components.starts
    clock.sleep(PAUSE_MAX_S)
    supervisor.poll()
    assert components.starts == started, "what was stopped stays so"


def test_one_that_runs_is_left_alone(tmp_path: Path) -> None:
    components = Short(tmp_path, tmp_path / "hourmark.toml", tmp_path, FakeClock())
    components.lasts = True
    supervisor = Supervisor(components, components.clock, print)
    supervisor.start(["etl"])
    try:
        supervisor.poll()
        assert components.starts == 1
    finally:
        components.kill("etl")


def test_a_configuration_that_is_not_there_or_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hourmark init"):
        Run(tmp_path, tmp_path / "absent.toml", FakeClock(), print).run_once()
    (tmp_path / "bad.toml").write_text("=")
    with pytest.raises(ConfigError, match="not valid TOML"):
        Run(tmp_path, tmp_path / "bad.toml", FakeClock(), print).run_once()


def test_files_and_a_configuration_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    with pytest.raises(UsageError, match="and log files exclude each other"):
        CliRunner().invoke(
            run, ["--config", "x.toml", str(tmp_path / "a.log")], catch_exceptions=False
        )


def test_few_buckets_are_told_one_by_one_and_of_many_how_many() -> None:
    def row(name: str, minute: int, grade: str = "proved") -> dict[str, Any]:
        return {
            "type": name,
            "hour": f"2026-11-21T05:{minute:02}",
            "grade": grade,
            "events": 2,
            "state": "closed",
        }

    few, many = (
        [row("a", 1), row("a", 2)],
        [row("b", minute, "timed_out" if minute == 3 else "proved") for minute in range(20)],
    )
    assert [*describe_buckets([*many, *few])] == [
        "a 2026-11-21T05:01: proved, 2 events",
        "a 2026-11-21T05:02: proved, 2 events",
        "b 2026-11-21T05:00 to 2026-11-21T05:19: 20 buckets, 19 proved, 1 timed_out, 40 events",
    ]


def test_an_output_larger_than_a_pipe_does_not_keep_the_command_from_its_end(
    tmp_path: Path,
) -> None:
    def ended(process: subprocess.Popen[bytes]) -> None:
        wait_for(lambda: process.poll() is not None, "it ends")

    command = [
        sys.executable,
        "-c",
        "import sys; print('x' * (1 << 20)); print('said', file=sys.stderr)",
    ]
    status, output = run_and_wait(command, child_environment(), tmp_path / "log", ended)
    assert (status, len(output), (tmp_path / "log").read_text()) == (0, (1 << 20) + 1, "said\n")


def test_a_drain_that_a_killed_run_left_is_stopped_as_the_tailer(tmp_path: Path) -> None:
    killed, following = (
        Components(tmp_path, tmp_path / "x", tmp_path, SystemClock()) for _ in range(2)
    )

    def stopped(process: subprocess.Popen[bytes]) -> None:
        wait_for(lambda: (tmp_path / "on").exists(), "it runs")
        following.stop_all()
        wait_for(lambda: process.poll() is not None, "it ends")

    script = "import sys, time; open(sys.argv[1], 'w'); time.sleep(300)"
    command = [sys.executable, "-c", script, str(tmp_path / "on")]
    run_and_wait(command, killed.environment("tailer"), tmp_path / "log", stopped)
