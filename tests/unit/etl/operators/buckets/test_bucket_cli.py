"""`hourmark bucket` on a root of its own: what is listed, shown, checked and printed, with and
without a ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.buckets import HOUR, LATER, TYPE, Plan, make_event, usual_plan

from hourmark.errors import Finding, UsageError
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, BucketOffset, Grade, Manifest, MissingRanges
from hourmark_etl.buckets.reader import NotClosed
from hourmark_etl.operators.buckets.cli import bucket
from hourmark_etl.operators.buckets.exits import BucketExit
from hourmark_etl.storage import LocalDisk, Storage

Run = Callable[..., Result]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalDisk(tmp_path / "root")


@pytest.fixture
def plan(storage: Storage) -> Plan:
    return usual_plan(storage)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where `plan` closes its bucket."""
    return tmp_path / "root" / HOUR.bucket_path(TYPE)


@pytest.fixture
def run(file: Path) -> Run:
    return lambda *arguments: CliRunner().invoke(bucket, [*arguments, "--config", str(file)])


def test_ls_shows_what_is_closed_and_makes_no_ledger(plan: Plan, run: Run, tmp_path: Path) -> None:
    manifest = plan.close()
    result = run("ls")
    assert result.exit_code == 0
    header, row = result.stdout.splitlines()
    names = "type hour grade events late duplicates removed unaudited bytes closed after s"
    assert header.split() == names.split()
    size = sum(file.bytes for file in manifest.files)
    assert row.split() == [TYPE, str(HOUR), "proved", "35", "5", "2", "0", str(size), "0.0"]
    assert "only closed buckets" in result.stderr and not (tmp_path / "ledger.sqlite").exists()
    (listed,) = json.loads(run("ls", TYPE, "--json").stdout)
    assert (listed["events"], listed["late"], listed["grade"], listed["state"]) == (
        35,
        5,
        "proved",
        "closed",
    )


def test_ls_of_an_empty_root_says_so(run: Run) -> None:
    result = run("ls")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no bucket is closed" in result.stderr
    assert json.loads(run("ls", "--json").stdout) == []


def test_ls_shows_a_bucket_with_a_broken_marker(folder: Path, plan: Plan, run: Run) -> None:
    plan.close()
    (folder / MARKER).write_bytes(b"")
    result = run("ls")
    assert f"{TYPE}  {HOUR}  -" in result.stdout
    assert "is not this bucket's manifest" in result.stderr


def test_show_prints_the_manifest(plan: Plan, run: Run) -> None:
    manifest = plan.close()
    text = run("show", TYPE, str(HOUR)).stdout
    assert (
        "proved, 35 events" in text
        and "part-00001.avro  10 events" in text
        and "5 events of 2026-11-21T04" in text
        and "  codec       deflate\n" in text
    )
    assert Manifest.decode(run("show", TYPE, str(HOUR), "--json").stdout_bytes) == manifest


def test_show_says_what_hosts_lost_and_what_nobody_knows_beside_the_grade(
    folder: Path, plan: Plan, run: Run
) -> None:
    manifest = plan.close().model_copy(update={"lost": {"app": 70}, "unknown": {"app": 2}})
    (folder / MARKER).write_bytes(manifest.encode())
    text = run("show", TYPE, str(HOUR)).stdout
    assert (
        "proved, 35 events" in text
        and "70 bytes of source app" in text
        and "source app may have lost more, on 2 occasions" in text
    )


def test_show_names_sources_that_cannot_be_asked_again_and_others_have_no_such_field(
    folder: Path, plan: Plan, run: Run
) -> None:
    manifest = plan.close()
    assert b"unrepeatable" not in manifest.encode(), "readers of before know no such field"
    (folder / MARKER).write_bytes(manifest.model_copy(update={"unrepeatable": ["net"]}).encode())
    assert (
        "source net: what never reached a disk of its hosts" in run("show", TYPE, str(HOUR)).stdout
    )


def long_manifest(manifest: Manifest, count: int) -> Manifest:
    """The same with lists of this length: of waived hosts, ranges, files, late hours, partitions."""
    file = manifest.files[0]
    waived = [f"source app of tailer web-{n} had not caught up" for n in range(count)]
    hours = [Hour(LATER.start_s - 3600 * (n + 2)) for n in range(count)]
    return manifest.model_copy(
        update={
            "grade": Grade.TIMED_OUT,
            "evidence": manifest.evidence.model_copy(update={"waived": waived}),
            "lacks": MissingRanges(ranges=[f"{n:016x}" for n in range(count)], more=True),
            "files": [file.model_copy(update={"name": f"part-{n:05}.avro"}) for n in range(count)],
            "late": {str(hour): 1 for hour in hours},
            "offsets": [
                BucketOffset(topic="t", topic_id="i", partition=n, next=n) for n in range(count)
            ],
            "left_out": 3,
        }
    )


def test_show_limits_long_lists_and_all_prints_them(folder: Path, plan: Plan, run: Run) -> None:
    (folder / MARKER).write_bytes(long_manifest(plan.close(), 23).encode())
    listed = ("waived", "lacks", "late", "file", "offset")
    limited, whole = (
        [line.split() for line in run("show", TYPE, str(HOUR), *more).stdout.splitlines()]
        for more in ((), ("--all",))
    )
    for name in listed:
        assert sum(line[0] == name for line in limited) == 20 + (name == "lacks"), name
        assert sum(line[0] == name for line in whole) == 23 + (name == "lacks"), name
    left_out = [" ".join(line[1:]) for line in limited if line[0] == "…"]
    assert left_out == [
        f"and 3 more {nouns}: --all prints them"
        for nouns in ("waived conditions", "ranges", "hours", "files", "partitions")
    ]
    assert not [line for line in whole if line[0] == "…"]
    found = Manifest.decode(run("show", TYPE, str(HOUR), "--json").stdout_bytes)
    assert len(found.files) == len(found.offsets) == 23, "--json is complete"


def test_show_of_short_lists_leaves_nothing_out(folder: Path, plan: Plan, run: Run) -> None:
    (folder / MARKER).write_bytes(long_manifest(plan.close(), 20).encode())
    text = run("show", TYPE, str(HOUR)).stdout
    assert "…" not in text and "left out    3 staged rows" in text


def test_verify_passes_a_bucket_that_is_right(plan: Plan, run: Run) -> None:
    plan.close()
    result = run("verify")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "1 buckets, 35 events, 0 findings"
    assert json.loads(run("verify", TYPE, str(HOUR), "--json").stdout)["findings"] == []


def test_verify_names_the_finding_and_exits_with_1(folder: Path, plan: Plan, run: Run) -> None:
    plan.close()
    (folder / "part-00001.avro").unlink()
    result = run("verify", TYPE)
    assert isinstance(result.exception, Finding) and result.exception.exit_code == 1
    assert f"{TYPE} {HOUR} missing-file: part-00001.avro" in result.stdout
    (finding,) = json.loads(run("verify", "--json").stdout)["findings"]
    assert (finding["kind"], finding["file"]) == ("missing-file", "part-00001.avro")


def test_verify_of_a_type_names_an_hour_left_out(storage: Storage, plan: Plan, run: Run) -> None:
    plan.close()
    Plan(storage, LATER.next(), {}).close()
    result = run("verify")
    assert isinstance(result.exception, Finding)
    assert f"{TYPE} {LATER} missing-bucket" in result.stdout


def test_cat_prints_every_event(storage: Storage, run: Run) -> None:
    lines = [b"plain", "ünï".encode(), b"\xff\x00\n", b""]
    Plan(
        storage,
        HOUR,
        {"part-00000.avro": [make_event(HOUR, n, line) for n, line in enumerate(lines)]},
    ).close()
    events = [
        json.loads(line) for line in run("cat", TYPE, str(HOUR), "--json").stdout.splitlines()
    ]
    assert [event["line"] for event in events] == ["plain", "ünï", {"base64": "/wAK"}, ""]
    assert events[1]["event_id"] == str(make_event(HOUR, 1, lines[1])[0])
    assert events[1]["event_time"] == "2026-11-21T05:00:00.001Z"
    assert events[1]["file"] == {"id": "file-1", "generation": 0}
    first, _ = run("cat", TYPE, str(HOUR), "--limit", "2").stdout.splitlines()
    assert (
        first == '2026-11-21T05:00:00.000Z host-1 /var/log/app.log:0 {"line": "plain", "ms": 1.5}'
    )


def test_cat_of_a_damaged_bucket_says_what_to_do(folder: Path, plan: Plan, run: Run) -> None:
    plan.close()
    file = folder / "part-00000.avro"
    file.write_bytes(b"x" * file.stat().st_size)
    result = run("cat", TYPE, str(HOUR))
    assert isinstance(result.exception, Finding)
    assert f"hourmark bucket verify {TYPE} {HOUR}" in str(result.exception)


@pytest.mark.parametrize("command", ["show", "verify", "cat"])
def test_a_bucket_not_closed_yet_is_said_to_be(plan: Plan, run: Run, command: str) -> None:
    plan.close()
    result = run(command, TYPE, str(LATER))
    code = BucketExit.OPEN if command == "show" else 1
    assert isinstance(result.exception, NotClosed) and result.exception.exit_code == code
    assert f"{TYPE} {LATER} is not closed" in str(result.exception)


def test_an_unknown_type_is_said_to_have_no_buckets(plan: Plan, run: Run) -> None:
    plan.close()
    result = run("ls", "start-song")
    assert isinstance(result.exception, NotClosed)
    assert "known types: end-song" in str(result.exception)


@pytest.mark.parametrize("label", ["yesterday", "2026-11-21T05:07", "2026-13-01T00"])
def test_a_wrong_hour_is_wrong_use(plan: Plan, run: Run, label: str) -> None:
    result = run("show", TYPE, label)
    assert isinstance(result.exception, UsageError) and label in str(result.exception)


@pytest.mark.parametrize("command", ["", "ls", "show", "verify", "cat", "why", "wait", "force"])
def test_every_help_has_an_example(command: str) -> None:
    result = CliRunner().invoke(bucket, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert "hourmark bucket" in result.stdout
