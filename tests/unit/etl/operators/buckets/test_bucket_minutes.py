"""`hourmark bucket` where buckets are shorter than an hour, and where several are read at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.buckets import TYPE, Plan, make_event

from hourmark.errors import UsageError
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER
from hourmark_etl.buckets.reader import NotClosed
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.storage import LocalDisk, Storage, StorageEntry

Run = Callable[..., Result]
FIRST = Hour.parse("2026-11-21T04:58", 60)
MINUTES = [Hour(FIRST.start_s + 60 * number, 60) for number in range(4)]  # 04:58 to 05:01


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalDisk(tmp_path / "root")


@pytest.fixture
def run(file: Path, storage: Storage) -> Run:
    """Run a `bucket` command on a root with four buckets of a minute, the nth with n events."""
    file.write_text(file.read_text() + "[parsing]\nbucket_seconds = 60\n")
    for count, minute in enumerate(MINUTES):
        events = [make_event(minute, number) for number in range(count)]
        Plan(
            storage, minute, {"part-00000.avro": events} if events else {}, {"bucket_seconds": 60}
        ).close()
    return lambda *arguments: CliRunner().invoke(bucket, [*arguments, "--config", str(file)])


def minutes(result: Result) -> list[str]:
    """The minutes of the printed events."""
    assert result.exit_code == 0, result.output
    return [json.loads(line)["event_time"][11:16] for line in result.stdout.splitlines()]


@pytest.mark.parametrize("command", ["show", "verify", "cat", "why", "wait"])
def test_an_hour_is_not_taken_for_its_first_minute(run: Run, command: str) -> None:
    result = run(command, TYPE, "2026-11-21T05")
    assert isinstance(result.exception, UsageError), result.output
    for part in ("'2026-11-21T05'", "60 s", "2026-11-21T05:00", "--from"):
        assert part in str(result.exception)


def test_the_last_hour_of_a_selection_is_a_whole_hour(run: Run) -> None:
    listed = json.loads(
        run("ls", "--from", "2026-11-21T05", "--to", "2026-11-21T05", "--json").stdout
    )
    assert [row["hour"] for row in listed] == [str(minute) for minute in MINUTES[2:]]
    listed = json.loads(run("ls", "--to", "2026-11-21T04:58", "--json").stdout)
    assert [row["hour"] for row in listed] == [str(FIRST)]


def test_cat_prints_all_closed_buckets_of_a_selection_in_order(run: Run) -> None:
    assert minutes(run("cat", TYPE, "--json")) == ["04:59", "05:00", "05:00", *["05:01"] * 3]
    hour = ["--from", "2026-11-21T05", "--to", "2026-11-21T05"]
    result = run("cat", TYPE, *hour, "--json")
    assert minutes(result) == ["05:00", "05:00", *["05:01"] * 3]
    assert "2 buckets from 2026-11-21T05:00 to 2026-11-21T05:01" in result.stderr
    assert minutes(run("cat", TYPE, "--from", "2026-11-21T04:59", "--limit", "2", "--json")) == [
        "04:59",
        "05:00",
    ]


def test_cat_of_a_selection_names_a_bucket_that_is_not_closed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "root" / MINUTES[2].bucket_path(TYPE) / MARKER).unlink()
    result = run("cat", TYPE, "--json")
    assert minutes(result) == ["04:59", *["05:01"] * 3]
    assert f"{TYPE} {MINUTES[2]} is not closed" in result.stderr


def test_cat_of_one_bucket_of_a_selection_reports_one(run: Run) -> None:
    label = str(MINUTES[2])
    result = run("cat", TYPE, "--from", label, "--to", label)
    assert f"1 bucket from {label} to {label}" in result.stderr


def test_cat_of_a_selection_without_a_closed_bucket_is_an_error(run: Run) -> None:
    result = run("cat", TYPE, "--from", "2026-11-22T05")
    assert isinstance(result.exception, NotClosed)
    assert "bucket ls" in str(result.exception)


def test_cat_takes_either_a_bucket_or_a_selection(run: Run) -> None:
    result = run("cat", TYPE, "2026-11-21T05:00", "--from", "2026-11-21T05")
    assert isinstance(result.exception, UsageError)
    result = run("cat", TYPE, "--from", "2026-11-21T06", "--to", "2026-11-21T05")
    assert isinstance(result.exception, UsageError) and "swap" in str(result.exception)


def test_cat_of_a_selection_counts_hours_that_have_no_bucket(run: Run, tmp_path: Path) -> None:
    whole = "4 buckets from 2026-11-21T04:58 to 2026-11-21T05:01"
    assert run("cat", TYPE).stderr.splitlines() == [whole]
    shutil.rmtree(tmp_path / "root" / MINUTES[1].bucket_path(TYPE))
    assert run("cat", TYPE).stderr.splitlines() == [
        f"{whole.replace('4', '3', 1)}; hours between them without a closed bucket: 1"
    ]


@pytest.mark.parametrize("option", ["--from", "--to"])
@pytest.mark.parametrize("arguments", [["ls"], ["cat", TYPE], ["cat", TYPE, "2026-11-21T05:00"]])
def test_an_empty_hour_is_not_an_omitted_one(run: Run, arguments: list[str], option: str) -> None:
    """A variable of a shell that is not set."""
    assert isinstance(run(*arguments, option, "").exception, UsageError)


def test_cat_lists_no_folders_of_days_outside_the_selection(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    list_folder = LocalDisk.list

    def listing(self: LocalDisk, folder: str) -> list[StorageEntry]:
        listed.append(folder)
        return list_folder(self, folder)

    monkeypatch.setattr(LocalDisk, "list", listing)
    run("cat", TYPE, "--from", "2026-11-22T00")
    run("cat", TYPE, "--to", "2026-11-20T23")
    assert {*listed} == {"", TYPE}
