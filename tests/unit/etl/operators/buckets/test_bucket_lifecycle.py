"""`hourmark bucket expire` and `copy`, and what the other commands show of a removed bucket."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner, Result
from tests.support.bucket_chains import close_hours, hours_of
from tests.support.buckets import TYPE

from hourmark.errors import Finding, UsageError
from hourmark.records.manifest import MARKER
from hourmark_etl.buckets.reader import BucketRemoved, list_hours
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.operators.buckets.exits import BucketExit
from hourmark_etl.storage import BadBlocks, LocalDisk

HOURS = hours_of("2025-11-01T22", "2025-11-01T23", "2025-11-03T00", "2025-11-03T01")
Run = Callable[..., Result]


@pytest.fixture
def storage(tmp_path: Path) -> LocalDisk:
    made = LocalDisk(tmp_path / "root")
    close_hours(made, HOURS)
    return made


@pytest.fixture
def run(file: Path) -> Run:
    file.write_text(file.read_text() + f"\n[etl.retention_days]\n{TYPE} = 30\n")
    return lambda *arguments: CliRunner().invoke(bucket, [*arguments, "--config", str(file)])


def test_expire_lists_days_and_removes_them_only_when_told(storage: LocalDisk, run: Run) -> None:
    listed = run("expire")
    assert listed.exit_code == 0
    assert listed.stdout.splitlines()[1].split()[:4] == [TYPE, "30", "2025-11-01", "2"]
    assert "2 buckets of 1 day would be removed; --execute removes them" in listed.stderr
    assert list_hours(storage, TYPE, 3600) == HOURS
    (row,) = json.loads(run("expire", TYPE, "--execute", "--json").stdout)
    assert (row["date"], row["buckets"], row["state"]) == ("2025-11-01", 2, "removed")
    assert list_hours(storage, TYPE, 3600) == HOURS[2:]
    assert json.loads(run("expire", "--json").stdout) == []


def test_a_type_without_retention_is_never_removed(storage: LocalDisk, file: Path) -> None:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(bucket, [*arguments, "--config", str(file)])

    result = run("expire", "--execute")
    assert (
        result.exit_code == 0 and "1 type without an entry in etl.retention_days" in result.stderr
    )
    refused = run("expire", TYPE, "--execute")
    assert isinstance(refused.exception, UsageError)
    assert list_hours(storage, TYPE, 3600) == HOURS


def test_a_broken_chain_is_a_finding(storage: LocalDisk, run: Run) -> None:
    storage.delete(HOURS[1].bucket_path(TYPE))
    result = run("expire", "--execute")
    assert isinstance(result.exception, Finding)
    assert "no bucket of the type is removed" in str(result.exception)
    assert list_hours(storage, TYPE, 3600) == [HOURS[0], *HOURS[2:]]


@pytest.mark.usefixtures("storage")
def test_a_removed_bucket_is_shown_with_its_grade_and_reason(run: Run) -> None:
    run("expire", "--execute")
    shown = run("show", TYPE, str(HOURS[0]))
    assert shown.exit_code == BucketExit.REMOVED
    assert f"{TYPE} {HOURS[0]}: proved, 2 events" in shown.stdout
    assert f"by etl.retention_days.{TYPE} = 30" in shown.stderr
    explained = run("why", TYPE, str(HOURS[0]))
    assert explained.exit_code == BucketExit.REMOVED
    assert "removed at " in explained.stdout and "closed as proved" in explained.stdout
    printed = run("cat", TYPE, str(HOURS[0]))
    assert isinstance(printed.exception, BucketRemoved)


@pytest.mark.usefixtures("storage")
def test_verify_and_ls_count_removed_buckets(run: Run) -> None:
    run("expire", "--execute")
    verified = run("verify")
    assert verified.exit_code == 0, verified.output
    assert "4 buckets (2 removed), 4 events, 0 findings" in verified.stdout
    rows = json.loads(run("ls", "--json").stdout)
    assert [row["state"] for row in rows] == ["removed", "removed", "closed", "closed"]
    assert "proved, removed" in run("ls").stdout
    (summary,) = json.loads(run("ls", "--summary", "--json").stdout)
    assert (summary["buckets"], summary["removed"]) == (4, 2)


def test_copy_verifies_and_repeats(storage: LocalDisk, run: Run, tmp_path: Path) -> None:
    new = tmp_path / "new.toml"
    new.write_text(f'[storage]\nroot = "file://{tmp_path}/new"\n')
    storage.write_new("_staging/000000000001-a/events.parquet", b"rows")
    first = json.loads(run("copy", "--to-config", str(new), "--etl-files", "--json").stdout)
    assert first["types"][0]["copied"] == 4 and first["etl_files"]["_staging"] == 1
    target = LocalDisk(tmp_path / "new")
    assert list_hours(target, TYPE, 3600) == HOURS
    path = f"{HOURS[3].bucket_path(TYPE)}/{MARKER}"
    assert target.read(path) == storage.read(path)
    again = json.loads(run("copy", TYPE, "--to-config", str(new), "--json").stdout)
    assert (again["types"][0]["copied"], again["types"][0]["present"]) == (0, 4)


def test_a_dry_run_of_a_copy_changes_nothing(storage: LocalDisk, run: Run, tmp_path: Path) -> None:
    new = tmp_path / "new.toml"
    new.write_text(f'[storage]\nroot = "file://{tmp_path}/new"\n')
    run("expire", "--execute")
    printed = run("copy", "--to-config", str(new), "--dry-run", "--json")
    found = json.loads(printed.stdout)
    assert (found["types"][0]["copied"], found["types"][0]["tombstones"]) == (2, 1)
    assert found["types"][0]["bytes_copied"] > 0 and found["dry_run"]
    assert "nothing was copied" in printed.stderr
    assert not (tmp_path / "new").exists()
    refused = run("copy", "--to-config", str(new), "--dry-run", "--etl-files")
    assert isinstance(refused.exception, UsageError)
    assert list_hours(storage, TYPE, 3600) == HOURS[2:]


def test_what_was_done_before_an_error_is_printed(
    storage: LocalDisk, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new.toml"
    new.write_text(f'[storage]\nroot = "file://{tmp_path}/new"\n')
    real, lost = LocalDisk.open, f"{HOURS[2].bucket_path(TYPE)}/part-00000.avro"

    def opened(self: LocalDisk, path: str, *, size: int | None = None) -> BinaryIO:
        if path == lost:
            raise BadBlocks(path, self.url(path), "no live replica has it")
        return real(self, path, size=size)

    monkeypatch.setattr(LocalDisk, "open", opened)
    result = run("copy", "--to-config", str(new), "--json")
    assert isinstance(result.exception, BadBlocks)
    assert json.loads(result.stdout)["types"][0]["copied"] == 2


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("folder", ["root", "root/archive", ""])
def test_copy_to_the_same_root_or_into_it_is_refused(run: Run, tmp_path: Path, folder: str) -> None:
    new = tmp_path / "new.toml"
    new.write_text(f'[storage]\nroot = "file://{tmp_path}/{folder}"\n')
    result = run("copy", "--to-config", str(new))
    assert isinstance(result.exception, UsageError)
    assert "neither may contain the other" in str(result.exception)
