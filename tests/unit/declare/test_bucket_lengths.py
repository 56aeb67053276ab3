"""`hourmark init` chooses the bucket length by the lines, and uses that of an existing root."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hourmark.clock import SystemClock
from hourmark.config.loading import load_config
from hourmark.errors import UsageError
from hourmark_declare.init_cli import init
from hourmark_declare.proposing.bucket_lengths import choose_bucket_length

NOW_MS = 1_795_255_205_000  # 2026-11-21T10:00:05Z
RECENT, OLD = "2026-11-21T08:00:06Z", "2026-11-21T08:00:05Z"
A, B = Path("a.log"), Path("b.log")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOURMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def proposed(tmp_path: Path, age: dt.timedelta, *options: str) -> Any:
    time = dt.datetime.fromtimestamp(SystemClock().now_ms() / 1000, dt.UTC) - age
    log = tmp_path / "app.log"
    log.write_text(f"2005-06-01 10:00:00 INFO one\n{time:%Y-%m-%d %H:%M:%S} INFO two\n")
    arguments = [str(log), "--out", str(tmp_path / "out"), "--zone", "UTC", "--yes", *options]
    return CliRunner().invoke(init, arguments, catch_exceptions=False)


def written_length_s(tmp_path: Path) -> int:
    return load_config(tmp_path / "out/hourmark.toml").parsing.bucket_seconds


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        ({A: OLD}, (3600, "because no line is under two hours old")),
        ({A: OLD, B: RECENT}, (60, "because b.log has a line that is under two hours old")),
        ({A: OLD, B: None}, (60, "because the lines of b.log contain no time")),
        ({A: "2026-11-21T12:00:00Z"}, (60, "because a.log has a line that is under two hours old")),
    ],
    ids=["two hours old", "one recent file", "no time", "a clock ahead"],
)
def test_buckets_are_minutes_if_any_line_is_under_two_hours_old(
    newest: dict[Path, str | None], expected: tuple[int, str]
) -> None:
    assert choose_bucket_length(newest, NOW_MS) == expected


def test_a_recent_line_at_the_end_of_an_old_file_gives_minutes(tmp_path: Path) -> None:
    said = proposed(tmp_path, dt.timedelta(minutes=119)).output
    assert written_length_s(tmp_path) == 60
    assert f"buckets of 1 minute, because {tmp_path}/app.log has a line that is under two" in said


def test_old_lines_alone_give_hours(tmp_path: Path) -> None:
    said = proposed(tmp_path, dt.timedelta(minutes=121)).output
    assert written_length_s(tmp_path) == 3600
    assert "buckets of an hour, because no line is under two hours old, from " in said


def test_the_option_decides(tmp_path: Path) -> None:
    said = proposed(tmp_path, dt.timedelta(days=1), "--bucket-seconds", "600").output
    assert written_length_s(tmp_path) == 600
    assert "buckets of 10 minutes, as --bucket-seconds sets it, from " in said


def test_a_local_stack_keeps_its_bucket_length(tmp_path: Path, home: Path) -> None:
    stack = home / "stack/hourmark.toml"
    stack.parent.mkdir(parents=True)
    stack.write_text("[parsing]\nbucket_seconds = 3600\n")
    said = proposed(tmp_path, dt.timedelta(minutes=1)).output
    assert written_length_s(tmp_path) == 3600
    assert f"buckets of an hour, as in {stack}, from " in said


def test_a_damaged_configuration_of_the_stack_is_named(tmp_path: Path, home: Path) -> None:
    stack = home / "stack/hourmark.toml"
    stack.parent.mkdir(parents=True)
    stack.write_text("[parsing\n")
    with pytest.raises(UsageError, match=r"stack/hourmark.toml: .*; `hourmark up` writes it again"):
        proposed(tmp_path, dt.timedelta(minutes=1))
