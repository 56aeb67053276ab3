"""How services and tailers are told to stand: by /readyz, by the lock of the state folder, by their
last reports.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import re
import time
from pathlib import Path

import pytest
from tests.support.certificates import Authority
from tests.support.http_server import Answering, serving
from tests.support.service.threaded import served

from hourmark.commands.component_status import FRESH_MS, ComponentState
from hourmark.commands.problems import CauseClass
from hourmark.config.groups import (
    KafkaCluster,
    KafkaSettings,
    ServiceSettings,
    ServiceTls,
    TailerSettings,
)
from hourmark.config.loading import Config
from hourmark.records.host_reports import HostReport
from hourmark.state_folder import StateFolder
from hourmark_delivery_service import component_status
from hourmark_delivery_service.component_status import (
    service_status,
    status_from_reports,
    tailers_from_reports,
    tailers_status,
)

NOW_MS = 1_800_000_000_000


def config(folder: Path, port: int = 1) -> Config:
    return Config(
        kafka=KafkaSettings(edge=KafkaCluster(bootstrap="127.0.0.1:1")),
        service=ServiceSettings(port=port, state_dir=folder / "service"),
        tailer=TailerSettings(state_dir=folder / "tailer"),
    )


def report(host: str, seconds_ago: float, *, goodbye: bool = False) -> HostReport:
    at_ms = NOW_MS - int(seconds_ago * 1000)
    return HostReport(
        host_id=host.encode().hex().ljust(32, "0"),
        host_name=host,
        kind="tailer",
        incarnation="i",
        sequence=0,
        received_at_ms=at_ms,
        goodbye=goodbye,
        sources=(),
    )


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (200, b'{"ready": true, "reasons": []}', "^ready at http://"),
        (
            503,
            b'{"ready": false, "reasons": ["too few in-sync replicas"]}',
            "not ready: too few in-sync replicas$",
        ),
        (500, b"oh", "not ready: status 500$"),
    ],
)
def test_a_service_that_answers_runs_and_says_whether_it_is_ready(
    tmp_path: Path, code: int, body: bytes, said: str
) -> None:
    class Handler(Answering):
        def do_GET(self) -> None:
            assert self.path == "/readyz"
            self.answer(code, body)

    with serving(Handler) as address:
        found = service_status(config(tmp_path, int(address.rpartition(":")[2])), NOW_MS)
    assert (found.state, found.heard_at_ms) == (ComponentState.RUNNING, NOW_MS)
    assert re.search(said, found.detail)


@pytest.mark.parametrize("asks_clients", [False, True])
def test_a_service_with_tls_is_known_by_its_own_certificate(
    tmp_path: Path, asks_clients: bool
) -> None:
    authority = Authority(tmp_path / "ca")
    mine, another = (
        authority.issue("service", "service.example"),
        authority.issue("another", "service.example"),
    )
    tls = ServiceTls(
        certificate=mine.certificate, key=mine.key, client_ca=authority.ca if asks_clients else None
    )
    with served(tls) as running:
        told = config(tmp_path, running.port)
        asked = told.service.model_copy(update={"tls": tls, "host": "0.0.0.0"})
        found = service_status(told.model_copy(update={"service": asked}), NOW_MS)
        assert (found.state, found.detail) == (
            ComponentState.RUNNING,
            f"ready at https://127.0.0.1:{running.port}",
        )
        stranger = asked.model_copy(
            update={
                "tls": tls.model_copy(
                    update={"certificate": another.certificate, "key": another.key}
                )
            }
        )
        found = service_status(told.model_copy(update={"service": stranger}), NOW_MS)
        assert "its certificate is not accepted" in found.detail
        assert "set this configuration to the file that the service uses" in found.problems[0].do


def test_a_service_whose_certificate_has_expired_says_so_and_does_not_hang(tmp_path: Path) -> None:
    expired = Authority(tmp_path / "ca").issue(
        "service", until=dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    )
    tls = ServiceTls(certificate=expired.certificate, key=expired.key)
    with served(tls) as running, StateFolder(tmp_path / "service", "service").lock():
        told = config(tmp_path, running.port)
        asked = told.service.model_copy(update={"tls": tls})
        found = service_status(told.model_copy(update={"service": asked}), NOW_MS)
    (problem,) = found.problems
    assert found.state is ComponentState.RUNNING and found.pid == os.getpid()
    assert "certificate has expired" in problem.what and "renew the file" in problem.do


def test_a_service_without_the_tls_of_the_configuration_is_not_called_dead(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "ca").issue("service")
    tls = ServiceTls(certificate=pair.certificate, key=pair.key)
    with serving(Answering) as address:
        told = config(tmp_path, int(address.rpartition(":")[2]))
        asked = told.service.model_copy(update={"tls": tls})
        found = service_status(told.model_copy(update={"service": asked}), NOW_MS)
    assert found.state is ComponentState.UNKNOWN and found.problems == ()
    assert "the TLS handshake fails" in found.detail


@pytest.mark.parametrize("held", [True, False])
def test_one_that_does_not_answer_is_known_by_its_folder_while_kafka_is_away_too(
    tmp_path: Path, held: bool
) -> None:
    locks = (
        [StateFolder(tmp_path / name, name).lock() for name in ("service", "tailer")]
        if held
        else []
    )
    found = service_status(config(tmp_path), NOW_MS), tailers_status(config(tmp_path), NOW_MS)
    for lock in locks:
        lock.close()
    assert [one.state for one in found] == (
        [ComponentState.SILENT, ComponentState.RUNNING]
        if held
        else [ComponentState.NOT_RUNNING, ComponentState.UNKNOWN]
    )
    assert [p.subject for p in found[0].problems] == (
        ["delivery service http://127.0.0.1:1"] if held else []
    )
    assert all((one.pid is not None) is held for one in found)
    assert all("no broker of the edge cluster listens" in one.detail for one in found)


def test_a_service_that_was_just_started_is_no_problem_yet(tmp_path: Path) -> None:
    with StateFolder(tmp_path / "service", "service").lock():
        found = service_status(config(tmp_path), time.time_ns() // 1_000_000)
    assert (found.state, found.problems) == (ComponentState.RUNNING, ())
    assert found.detail.startswith("starting, ")


def test_a_service_that_is_not_ready_is_a_problem_with_its_reasons(tmp_path: Path) -> None:
    class Handler(Answering):
        def do_GET(self) -> None:
            self.answer(503, b'{"ready": false, "reasons": ["too few in-sync replicas"]}')

    with serving(Handler) as address:
        found = service_status(config(tmp_path, int(address.rpartition(":")[2])), NOW_MS)
    (problem,) = found.problems
    assert problem.what == "it responds, but is not ready: too few in-sync replicas"


def test_a_warning_of_a_ready_service_such_as_a_missing_topic_is_a_problem(tmp_path: Path) -> None:
    class Handler(Answering):
        def do_GET(self) -> None:
            self.answer(200, b'{"ready": true, "reasons": [], "warnings": ["no topic events.a"]}')

    with serving(Handler) as address:
        found = service_status(config(tmp_path, int(address.rpartition(":")[2])), NOW_MS)
    assert (found.state, [p.what for p in found.problems]) == (
        ComponentState.RUNNING,
        ["no topic events.a"],
    )


def test_each_host_that_fell_silent_is_a_problem_and_those_that_said_goodbye_are_none() -> None:
    reports = [
        report("web-1", 3),
        report("web-2", FRESH_MS / 1000 + 1),
        report("web-3", 900, goodbye=True),
    ]
    (problem,) = status_from_reports(reports, NOW_MS).problems
    assert (problem.subject, problem.since_ms) == ("tailer web-2", NOW_MS - FRESH_MS - 1000)
    assert "on web-2" in problem.do and "`hourmark tail`" in problem.do


@pytest.mark.parametrize(
    ("silent_s", "other_lives", "problems"), [(60, True, 1), (700, True, 0), (700, False, 1)]
)
def test_a_silent_service_that_another_replaced_is_no_problem_for_ever(
    silent_s: int, other_lives: bool, problems: int
) -> None:
    reports = [dataclasses.replace(report("api-1", silent_s), kind="service")]
    if other_lives:
        reports.append(dataclasses.replace(report("api-2", 1), kind="service"))
    assert len(status_from_reports(reports, NOW_MS).problems) == problems


def test_tailers_are_not_to_blame_for_reports_that_no_service_stored() -> None:
    api = dataclasses.replace(report("api-1", 60), kind="service")
    told = tailers_from_reports([api, report("web-1", 61), report("web-2", 900)], NOW_MS)
    assert told.state is ComponentState.UNKNOWN
    assert [problem.subject for problem in told.problems] == ["tailer web-2"]
    assert told.detail.startswith(
        "no delivery service has stored their reports for 60 s; the last known state:"
    )
    live = dataclasses.replace(report("api-1", 1), kind="service")
    told = tailers_from_reports([live, report("web-1", 61), report("web-2", 900)], NOW_MS)
    assert len(told.problems) == 2


def test_a_report_of_the_future_shows_that_a_clock_is_wrong() -> None:
    (problem,) = status_from_reports([report("web-1", -90)], NOW_MS).problems
    assert problem.cause is CauseClass.CLOCK and "90 s ahead" in problem.what


def test_reports_tell_who_is_live_who_fell_silent_and_who_said_goodbye() -> None:
    found = status_from_reports(
        [report("web-1", 3), report("web-2", 900), report("web-3", 7200, goodbye=True)], NOW_MS
    )
    assert found.state is ComponentState.RUNNING
    assert (
        found.detail
        == "reported: web-1 (3 s ago); silent: web-2 (15 min ago); reported a goodbye: web-3 "
        "(2 h ago)"
    )
    assert found.heard_at_ms == NOW_MS - 3000
    assert (
        status_from_reports([report("web-2", FRESH_MS / 1000 + 1)], NOW_MS).state
        is ComponentState.SILENT
    )
    assert (
        status_from_reports([report("web-3", 1, goodbye=True)], NOW_MS).state
        is ComponentState.NOT_RUNNING
    )
    assert status_from_reports([], NOW_MS).detail == "no recent reports"


def test_of_many_hosts_the_newest_are_named() -> None:
    found = status_from_reports([report(f"web-{n}", n) for n in range(9)], NOW_MS)
    assert "web-0 (0 s ago)" in found.detail and found.detail.endswith("web-4 (4 s ago) and 4 more")


def kind(made: HostReport, name: str) -> HostReport:
    return dataclasses.replace(made, kind=name)


@pytest.mark.parametrize("are_alive", [True, False])
def test_reports_that_are_old_and_go_on_arriving_show_a_clock_and_no_silent_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_alive: bool
) -> None:
    """The clock of this machine is ten minutes ahead; or all hosts have been silent for so long."""
    reads = [
        [
            kind(report("svc", 600 - n), "service"),
            report("web-1", 601 - n),
            report("web-2", 602 - n),
        ]
        for n in (0, 3 if are_alive else 0)
    ]
    monkeypatch.setattr(component_status, "_INTERVAL_S", 0.0)
    for status in (tailers_status, service_status):
        left = iter(reads)
        monkeypatch.setattr(component_status, "_read_reports", lambda _, left=left: next(left))
        found = status(config(tmp_path), NOW_MS)
        kinds = {problem.cause for problem in found.problems}
        if not are_alive:  # without a service, tailers are not to blame
            assert kinds == ({CauseClass.HOST} if status is service_status else set())
        else:
            assert kinds == {CauseClass.CLOCK}
            (problem,) = found.problems
            assert "times 597 s behind this machine's clock" in problem.what
            assert found.state is ComponentState.RUNNING
