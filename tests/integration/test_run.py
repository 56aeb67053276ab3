"""From a log file to closed buckets by one command, on a stack of its own; and again, with what
came since, and with a canary.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.backfill import write_old_log
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from hourmark.commands.canary import CANARY
from hourmark.config.loading import load_config
from hourmark.kafka.clients import Cluster
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

LINES = 500


def hourmark(folder: Path, *arguments: str, code: int = 0) -> str:
    environment = {**os.environ, "HOURMARK_HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "hourmark", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
    (folder / "progress").write_text(done.stderr)
    return done.stdout


def closing_began_after_all_was_delivered(folder: Path) -> None:
    """Otherwise hours older than their deadline would be closed before their lines come."""
    progress = (folder / "progress").read_text()
    delivered = progress.index("all lines are acknowledged")
    assert "\netl " not in progress[:delivered] and "\netl " in progress[delivered:]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    hourmark(tmp_path, "purge", "--yes")


def events(told: dict[str, Any]) -> dict[str, int]:
    """By type, what is in the buckets of a run."""
    return {row["type"]: row["events"] for row in told["buckets"]}


@pytest.mark.long
def test_a_log_file_is_in_closed_buckets_and_what_is_new_is_added(
    folder: Path,
) -> None:
    log = folder / "app.log"
    begun = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)
    lines = [f"{begun:%Y-%m-%d %H:%M:%S} INFO line {n}" for n in range(LINES)]
    log.write_text("\n".join(lines))  # the last one has no newline
    first = json.loads(hourmark(folder, "run", "--once", str(log), "--yes", "--json"))
    assert [row["hour"] for row in first["buckets"]] == [f"{begun:%Y-%m-%dT%H:%M}"], (
        "in the hour of their own"
    )
    assert events(first) == {"app": LINES}
    assert {row["grade"] for row in first["buckets"]} == {"proved"}
    closing_began_after_all_was_delivered(folder)
    same = json.loads(hourmark(folder, "run", "--once", "--json"))
    assert (same["buckets"], same["tailed"]["ranges"]) == ([], 0)
    assert "there is nothing new" in (folder / "progress").read_text()
    with log.open("a") as file:
        file.write(f"\n{begun - dt.timedelta(days=3):%Y-%m-%d %H:%M:%S} WARN one more\n")
    second = json.loads(hourmark(folder, "run", "--once", "--json"))
    assert events(second) == {"app": 1}
    (bucket,) = second["buckets"]
    assert bucket["hour"] > first["buckets"][0]["hour"], (
        "older than the first bucket: in the one that was open"
    )
    told = hourmark(folder, "bucket", "cat", "app", bucket["hour"], "--config", second["config"])
    assert '"level": "WARN"' in told
    assert "one more" in told
    assert findings(folder, second["config"], code=0) == {}


@pytest.mark.long
def test_another_file_joins_what_is_there(folder: Path) -> None:
    log, other = folder / "app.log", folder / "other.log"
    log.write_text(f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S} INFO the first\n")
    hourmark(folder, "run", "--once", str(log), "--yes", "--json")
    joined = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=7)
    started = f"{joined:%Y-%m-%d %H:%M}:07"
    old = "2005-06-03 15:42:07 [main] started\n"
    other.write_text(f"{old}{started} [main] started\n\tat a.b(C.java:7)\n{started} [main] ended\n")
    third = json.loads(hourmark(folder, "run", "--once", str(other), "--yes", "--json"))
    assert [
        (row["type"], row["hour"], row["events"], row["grade"]) for row in third["buckets"]
    ] == [
        ("other", "2005-06-03T15:42", 1, "proved"),
        ("other", f"{joined:%Y-%m-%dT%H:%M}", 2, "proved"),
    ], "it joins what is there; earlier than all before, and still in the hours of their own"
    assert findings(folder, third["config"], code=0) == {}


@pytest.mark.long
def test_a_canary_joins_and_the_doctor_names_what_is_wrong(folder: Path) -> None:
    log = folder / "app.log"
    log.write_text(f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S} INFO the first\n")
    first = json.loads(hourmark(folder, "run", "--once", str(log), "--yes", "--json"))
    with a_canary(folder, first["config"]):
        with log.open("a") as file:
            file.write(f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S} INFO another\n")
        second = json.loads(hourmark(folder, "run", "--once", "--json"))
        came = events(second)
        assert came.pop("app") == 1
        its_canary_comes_to_a_closed_bucket(folder, second, came)
    the_doctor_names_what_is_wrong(folder, second["config"])


@pytest.mark.long
def test_lines_of_2005_are_in_proved_buckets_of_their_own_hours(folder: Path) -> None:
    hours = write_old_log(folder / "old.log", 300)
    told = json.loads(hourmark(folder, "run", "--once", str(folder / "old.log"), "--yes", "--json"))
    assert [row["hour"] for row in told["buckets"]] == hours
    assert {(row["events"], row["late"], row["grade"]) for row in told["buckets"]} == {
        (1, 0, "proved")
    }
    asked = ("--config", told["config"])
    assert "line 299" in hourmark(folder, "bucket", "cat", "old", hours[-1], *asked)
    skipped = hours[0].replace("T15", "T16")
    assert "it had no events" in hourmark(folder, "bucket", "why", "old", skipped, *asked)
    hourmark(folder, "bucket", "verify", "old", *asked)
    hourmark(folder, "ledger", "check", *asked)
    same = json.loads(hourmark(folder, "run", "--once", "--json"))
    assert same["buckets"] == [], "nothing is added"


@pytest.mark.long
def test_a_file_that_is_rotated_before_the_run_is_delivered_and_may_be_deleted_after_it(
    folder: Path,
) -> None:
    log = folder / "app.log"
    begun = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)
    lines = [f"{begun:%Y-%m-%d %H:%M:%S} INFO line {n}\n" for n in range(LINES)]
    log.write_text("".join(lines))
    hourmark(folder, "init", str(log), "--yes")
    (folder / "app.log.2.gz").write_bytes(gzip.compress(log.read_bytes()))
    shutil.copystat(log, folder / "app.log.2.gz")
    log.unlink()
    log.write_text("".join(lines[:1]).replace("line 0", "rotated"))
    log.rename(folder / "app.log.1")
    log.write_text("".join(lines[:1]).replace("line 0", "new"))
    first = json.loads(hourmark(folder, "run", "--once", "--json"))
    assert events(first) == {"app": LINES + 2}
    assert f"{log} was rotated or deleted after" in (folder / "progress").read_text()
    (folder / "app.log.1").unlink()
    second = json.loads(hourmark(folder, "run", "--once", "--json"))
    assert (second["tailed"]["lost_bytes"], second["tailed"]["unknown_losses"]) == (0, 0)
    hourmark(folder, "down")
    assert findings(folder, second["config"], code=1).keys() == {"stack"}


@contextlib.contextmanager
def a_canary(folder: Path, config: str) -> Iterator[None]:
    """`hourmark canary run`, as on a host of its own; its type is declared, and applied by the next
    run.
    """
    (folder / "pipeline" / "types" / f"{CANARY}.toml").write_text(
        hourmark(folder, "canary", "declaration")
    )
    command = [sys.executable, "-m", "hourmark", "canary", "run", "--config", config]
    with (
        (folder / "canary.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def its_canary_comes_to_a_closed_bucket(
    folder: Path, told: dict[str, Any], came: dict[str, int]
) -> None:
    """And that is said.

    It may have been sent in the minute after the one that the run closed: then the next run that
    delivers something closes that.
    """
    if not came:
        with (folder / "app.log").open("a") as file:
            file.write(f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S} INFO for the next run\n")
        told = json.loads(hourmark(folder, "run", "--once", "--json"))
        came = events(told)
        came.pop("app")
    assert came.keys() == {CANARY}
    (hour,) = [row["hour"] for row in told["buckets"] if row["type"] == CANARY][-1:]
    assert '"site": "edge"' in hourmark(
        folder, "bucket", "cat", CANARY, hour, "--config", told["config"]
    )
    said = json.loads(hourmark(folder, "canary", "check", "--json", "--config", told["config"]))
    assert said["ok"] and said["age_seconds"]["edge"].keys() == {
        "acknowledged",
        "staged",
        "closed",
    }, "nothing is mirrored here"


def the_doctor_names_what_is_wrong(folder: Path, config: str) -> None:
    """Of real servers: that nothing is, and then what was done to them."""
    assert findings(folder, config, code=0) == {}
    edge = Cluster(load_config(Path(config)).kafka.edge, "edge")
    wrong = {
        "unclean.leader.election.enable": "true",
        "retention.ms": "60000",
        "min.insync.replicas": "1",
    }
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wrong.items()
    ]
    topic = ConfigResource(ResourceType.TOPIC, "events.app", incremental_configs=entries)
    for future in edge.admin.incremental_alter_configs([topic]).values():
        future.result(15)
    stack = LocalStack.load(folder / "home")
    stack.kill("registry")
    found = findings(folder, config, code=1)
    assert set(found) - {"retention"} == {
        "kafka",
        "registry",
    }  # a retention of a minute may be overtaken by what is open, or not
    for name in wrong:
        assert any("events.app" in said and name in said for said in found["kafka"]), found


def findings(folder: Path, config: str, *, code: int) -> dict[str, list[str]]:
    """By kind, what was found and what is to be done."""
    told = json.loads(hourmark(folder, "doctor", "--json", "--config", config, code=code))
    found: dict[str, list[str]] = {}
    for answer in told["answers"]:
        if answer["verdict"] == "finding":
            found.setdefault(answer["check"], []).append(
                f"{answer['subject']}: {answer['seen']}; {answer['to_do']}"
            )
    return found
