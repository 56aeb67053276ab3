"""How the driver is told to stand: by its metrics while it runs, by the ledger when it does not."""

from __future__ import annotations

import dataclasses
import os
import socket
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, update
from tests.support.clock import FakeClock
from tests.support.ports import free_port
from tests.support.records import service
from tests.support.waiting import wait_for

from hourmark.commands.component_status import ComponentState, ComponentStatus
from hourmark.config.groups import EtlSettings, StorageSettings
from hourmark.config.loading import Config
from hourmark.process.metrics_server import serve_metrics
from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER
from hourmark_etl.ledger import tables
from hourmark_etl.ledger.database import CLOSER, Database
from hourmark_etl.ledger.heartbeat import (
    BEAT_SECONDS,
    Heartbeat,
    last_heartbeat_ms,
    read_driver_signs,
    record_takeover,
    write_heartbeat,
)
from hourmark_etl.telemetry.component_status import HANGS_MS, driver_status
from hourmark_etl.telemetry.metrics import EtlMetrics

NOW_MS = 1_800_000_000_000


def ask(folder: Path, port: int, now_ms: int = NOW_MS) -> ComponentStatus:
    etl, storage = (
        EtlSettings(ledger=f"sqlite:///{folder}/ledger.sqlite", metrics_port=port),
        StorageSettings(root=f"file://{folder}/root"),
    )
    return driver_status(Config(etl=etl, storage=storage), now_ms)


def test_without_a_ledger_on_this_machine_nothing_is_known_and_nothing_is_claimed(
    tmp_path: Path,
) -> None:
    found = ask(tmp_path, free_port())
    assert found.state is ComponentState.UNKNOWN and "hourmark types apply" in found.detail
    assert found.problems == ()
    assert not (tmp_path / "ledger.sqlite").exists()


def test_a_ledger_that_is_not_here_is_no_problem_while_storage_does_not_answer_either(
    tmp_path: Path,
) -> None:
    etl = EtlSettings(ledger=f"sqlite:///{tmp_path}/none.sqlite", metrics_port=free_port())
    storage = StorageSettings(root="hdfs://127.0.0.1:1/x", webhdfs="http://127.0.0.1:1")
    found = driver_status(Config(etl=etl, storage=storage), NOW_MS)
    assert (found.state, found.problems) == (ComponentState.UNKNOWN, ())


def test_a_ledger_that_no_driver_ever_had_says_so(tmp_path: Path) -> None:
    Database(f"sqlite:///{tmp_path}/ledger.sqlite").close()
    found = ask(tmp_path, free_port())
    assert (
        found.state is ComponentState.NOT_RUNNING
        and "start one with `hourmark etl run`" in found.detail
    )


@pytest.mark.parametrize(
    ("seconds_ago", "state"),
    [
        (15, ComponentState.RUNNING),
        (30 - BEAT_SECONDS, ComponentState.NOT_RUNNING),
        (600, ComponentState.NOT_RUNNING),
    ],
)
def test_without_metrics_the_last_sign_of_life_tells_as_bucket_why_does(
    tmp_path: Path, seconds_ago: float, state: ComponentState
) -> None:
    seen_ms = NOW_MS - round(seconds_ago * 1000)
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        write_heartbeat(database, database.acquire(CLOSER), seen_ms)
        assert (read_driver_signs(database).describe_missing(NOW_MS) is None) == (
            state is ComponentState.RUNNING
        )
    found = ask(tmp_path, free_port())
    assert (found.state, found.heard_at_ms) == (state, seen_ms)
    assert [p.since_ms for p in found.problems] == (
        [] if state is ComponentState.RUNNING else [seen_ms]
    )


def test_a_driver_that_was_stopped_is_no_problem_and_one_that_was_killed_is(
    tmp_path: Path,
) -> None:
    clock = FakeClock(NOW_MS)
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        heartbeat = Heartbeat(database, database.acquire(CLOSER), clock)
        heartbeat.start()
        wait_for(lambda: last_heartbeat_ms(database) is not None, "the first heartbeat")
        heartbeat.stop(goodbye=True)
        stopped = ask(tmp_path, free_port(), NOW_MS + 600_000)
        assert (stopped.state, stopped.problems) == (ComponentState.NOT_RUNNING, ())
        assert "it was stopped at" in stopped.detail
        at_once = ask(tmp_path, free_port(), NOW_MS + 1000)
        assert at_once.state is ComponentState.NOT_RUNNING, "it does not run for 20 s more"
        write_heartbeat(database, database.acquire(CLOSER), NOW_MS + 60_000)
    killed = ask(tmp_path, free_port(), NOW_MS + 600_000)
    (problem,) = killed.problems
    assert "no driver is running" in problem.what and "`hourmark etl run`" in problem.do


def test_a_process_that_accepts_and_does_not_answer_hangs(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        write_heartbeat(database, database.acquire(CLOSER), NOW_MS - 12_000)
    with socket.create_server(("127.0.0.1", 0)) as suspended:
        found = ask(tmp_path, suspended.getsockname()[1])
    (problem,) = found.problems
    assert found.state is ComponentState.SILENT
    here = f"process {os.getpid()} on {socket.gethostname()}"
    assert problem.what.startswith(f"it hangs: {here} accepts connections")
    assert f"`kill -CONT {os.getpid()}`" in problem.do and here in found.detail


def test_a_driver_without_a_sign_is_named_with_its_process_and_host(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        write_heartbeat(database, database.acquire(CLOSER), NOW_MS - 60_000)
        with database.transaction() as connection:
            process = {"value": "4711 etl-1"}
            connection.execute(
                update(tables.meta).values(process).where(tables.meta.c.key == "driver_process")
            )
    (problem,) = ask(tmp_path, free_port()).problems
    assert "on etl-1: if process 4711 exists, it hangs" in problem.do


def test_a_ledger_of_an_older_version_names_no_process(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        write_heartbeat(database, database.acquire(CLOSER), NOW_MS - 60_000)
        with database.transaction() as connection:
            connection.execute(delete(tables.meta).where(tables.meta.c.key == "driver_process"))
    (problem,) = ask(tmp_path, free_port()).problems
    assert problem.do.startswith("start it: `hourmark etl run`")


def test_a_lost_ledger_is_a_problem(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        write_heartbeat(database, database.acquire(CLOSER), NOW_MS)
    (tmp_path / "ledger.sqlite").unlink()
    hour = Hour.parse("2026-11-21T05", 3600)
    marker = tmp_path / "root" / hour.bucket_path("click") / MARKER
    marker.parent.mkdir(parents=True)
    marker.write_text("{}")
    found = ask(tmp_path, free_port())
    (problem,) = found.problems
    assert found.state is ComponentState.UNKNOWN and "hourmark ledger rebuild" in problem.do


@pytest.mark.parametrize(
    ("sign_s", "report_s", "state"),
    [
        (4, 600, ComponentState.RUNNING),
        (4, None, ComponentState.RUNNING),
        (600, 4, ComponentState.NOT_RUNNING),
    ],
    ids=["hosts are silent", "no host reported yet", "a driver without the closer stages reports"],
)
def test_reports_of_hosts_say_nothing_of_the_driver(
    tmp_path: Path, sign_s: int, report_s: int | None, state: ComponentState
) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        lease = database.acquire(CLOSER)
        write_heartbeat(database, lease, NOW_MS - sign_s * 1000)
        if report_s is not None:
            heard_ms = NOW_MS - report_s * 1000
            said = service(received_at_ms=heard_ms, caught_up_at_ms=heard_ms, heard_at_ms=heard_ms)
            with database.transaction(lease) as connection:
                connection.execute(insert(tables.reporters).values(**dataclasses.asdict(said)))
    assert ask(tmp_path, free_port()).state is state


def test_a_driver_is_asked_at_its_metrics_and_one_that_hangs_is_silent(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        lease = database.acquire(CLOSER)
    metrics, port = EtlMetrics(), free_port()
    stop = serve_metrics(metrics.registry, "etl", "127.0.0.1", port)
    try:
        assert "has not polled yet" in ask(tmp_path, port).detail
        metrics.last_poll.set(NOW_MS / 1000 - 3)
        looked = ask(tmp_path, port)
        assert looked.state is ComponentState.RUNNING and looked.heard_at_ms == NOW_MS - 3000
        assert looked.detail.startswith(f"polled 3 s ago (127.0.0.1:{port}); ")
        assert f"commit {lease.epoch}" in looked.detail
        assert ask(tmp_path, port, NOW_MS + HANGS_MS).state is ComponentState.SILENT
    finally:
        stop()
    assert ask(tmp_path, port).state is ComponentState.UNKNOWN


def test_a_driver_that_polls_and_cannot_write_to_the_ledger_is_a_problem(tmp_path: Path) -> None:
    """As on a full disk; or the driver of another shard answers, and the one that closes is dead."""
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        lease = database.acquire(CLOSER)
        write_heartbeat(database, lease, NOW_MS - 60_000)
    metrics, port = EtlMetrics(), free_port()
    stop = serve_metrics(metrics.registry, "etl", "127.0.0.1", port)
    try:
        metrics.last_poll.set(NOW_MS / 1000 - 3)
        (problem,) = ask(tmp_path, port).problems
    finally:
        stop()
    assert "none has written to the ledger for 60 s" in problem.what
    assert (
        f"MiB are free; `fuser {tmp_path}/ledger.sqlite`" in problem.do
        and "only stages a shard" in problem.do
    )


def beat_as(database: Database, process: str, at_ms: int) -> None:
    """Another process takes the lease and gives a sign of life."""
    lease = database.acquire(CLOSER)
    record_takeover(database, lease, at_ms)
    write_heartbeat(database, lease, at_ms)
    with database.transaction() as connection:
        of_process = tables.meta.c.key == "driver_process"
        connection.execute(update(tables.meta).values(value=process).where(of_process))


def test_two_drivers_that_take_the_lease_from_each_other_are_named(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        for n in range(3):
            beat_as(database, "7 etl-2", NOW_MS - 300_000 + n * 60_000)
            problems = ask(tmp_path, free_port(), NOW_MS - 300_000 + n * 60_000).problems
            assert problems == (), "each took it from one that was silent for a minute"
        for n in range(3):
            beat_as(database, f"7 etl-{n}", NOW_MS - 30_000 + n * 5000)
        (problem,) = ask(tmp_path, free_port(), NOW_MS - 15_000).problems
    assert "take the ledger's lease from each other, 2 times" in problem.what
    assert f"process {os.getpid()} on" in problem.what and "stop one of the two" in problem.do
    assert ask(tmp_path, free_port(), NOW_MS + 1_900_000).problems[0].subject == "etl driver"


def test_a_driver_that_replaces_one_that_was_killed_takes_the_lease_from_nobody(
    tmp_path: Path,
) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        for n in range(3):
            beat_as(database, f"{1 << 30} {socket.gethostname()}", NOW_MS - 30_000 + n * 5000)
        assert ask(tmp_path, free_port(), NOW_MS - 15_000).problems == ()
