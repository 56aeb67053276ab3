"""The report of `hourmark status`: the verdict first, each problem with its next step, one screen."""

from __future__ import annotations

import json

from hourmark.commands.component_status import ComponentState, ComponentStatus
from hourmark.commands.problems import CauseClass, Problem
from hourmark.commands.server_status import ServerStatus
from hourmark.commands.status_report import PROBLEMS_SHOWN, StatusReport

NOW_MS = 1_800_000_000_000
RUNS = ComponentStatus(ComponentState.RUNNING, "well", 7, NOW_MS)
BROKER = ServerStatus(name="edge-1", address="127.0.0.1:1", healthy=True, detail="sees 3 brokers")
DEAD = Problem(
    cause=CauseClass.COMPONENT,
    key="driver",
    subject="etl driver",
    what="no driver is running",
    do="start it: `hourmark etl run`",
    since_ms=NOW_MS - 34_000,
)
TYPES = Problem(
    cause=CauseClass.TYPES,
    key="types",
    subject="201 types",
    what="hours have ended and are not closed",
    do="`hourmark etl run`",
    count=201,
    examples=("a", "b", "c"),
)


def report(
    *servers: ServerStatus,
    etl: ComponentStatus = RUNS,
    types: ComponentStatus = RUNS,
) -> StatusReport:
    return StatusReport(
        now_ms=NOW_MS,
        config="hourmark.toml",
        servers=servers,
        components={"service": RUNS, "etl": etl},
        aspects={"types": types},
    )


def test_the_first_line_is_the_verdict() -> None:
    assert next(report(BROKER).lines()) == (
        "WELL: all 1 servers are healthy; running: service, etl"
    )
    dead = ComponentStatus(ComponentState.NOT_RUNNING, "dead", problems=(DEAD,))
    waits = ComponentStatus(ComponentState.RUNNING, "201 types", problems=(TYPES,))
    lines = list(report(BROKER, etl=dead, types=waits).lines())
    assert lines[0] == "TROUBLE: etl driver: no driver is running; 1 more problem"
    assert lines[1:5] == [
        " 1. etl driver, since 2027-01-15 07:59:26Z (34 s): no driver is running",
        "    do: start it: `hourmark etl run`",
        " 2. 201 types (such as a, b, c): hours have ended and are not closed",
        "    do: `hourmark etl run`",
    ]


def test_what_cannot_be_seen_from_here_is_named_and_is_no_trouble() -> None:
    found = report(etl=ComponentStatus(ComponentState.UNKNOWN, "not part of this installation"))
    assert found.is_well
    assert found.verdict() == "WELL: running: service; not known from here: etl"


def test_of_servers_that_were_stopped_the_consequences_are_not_listed() -> None:
    stopped = ServerStatus(
        name="local stack",
        address="/home",
        healthy=False,
        is_stopped=True,
        detail="`hourmark down` stopped its servers",
        do="`hourmark up` starts them",
    )
    dead = ComponentStatus(ComponentState.NOT_RUNNING, "dead", problems=(DEAD,))
    waits = ComponentStatus(ComponentState.RUNNING, "201 types", problems=(TYPES,))
    found = report(stopped, etl=dead, types=waits)
    assert not found.is_well and [p.subject for p in found.problems] == ["local stack (/home)"]
    assert list(found.lines()) == [
        "STOPPED: local stack (/home): `hourmark down` stopped its servers",
        "    do: `hourmark up` starts them",
        "service      running     pid 7 well; it waits for the servers",
    ]


def test_a_server_that_is_not_healthy_is_a_problem_before_those_that_need_it() -> None:
    away = ServerStatus(
        name="edge-2",
        address="127.0.0.1:2",
        healthy=False,
        detail="not running",
        do="`hourmark up`",
    )
    dead = ComponentStatus(ComponentState.NOT_RUNNING, "dead", problems=(DEAD,))
    found = report(BROKER, away, etl=dead)
    assert [p.subject for p in found.problems] == ["edge-2 (127.0.0.1:2)", "etl driver"]
    assert any(line.startswith("edge-2       NOT HEALTHY ") for line in found.lines())


def test_many_problems_and_long_details_fit_on_one_screen_and_json_has_all() -> None:
    many = tuple(
        Problem(cause=CauseClass.HOST, key=f"{n}", subject=f"host {n}", what="silent", do="act")
        for n in range(50)
    )
    parts = ComponentStatus(ComponentState.RUNNING, "x" * 5000, problems=many)
    servers = [
        ServerStatus(name=f"edge-{n}", address="", healthy=n != 5, detail="") for n in range(40)
    ]
    found = report(*servers, types=parts)
    lines = list(found.lines())
    assert len(lines) <= 24 and max(map(len, lines)) < 250
    assert f"and {51 - PROBLEMS_SHOWN} more problems: `hourmark status --json` has all" in lines
    assert "39 other servers are healthy" in lines
    told = json.loads(json.dumps(found.to_json()))
    assert len(told["problems"]) == 51 and not told["ok"]
    assert len(told["aspects"][0]["detail"]) == 5000


def test_json_has_the_fields_that_version_0_3_had() -> None:
    told = report(BROKER).to_json()
    assert {"ok", "memory_mb", "servers", "components"} <= told.keys()
    assert told["servers"] == [
        {
            "name": "edge-1",
            "pid": None,
            "address": "127.0.0.1:1",
            "memory_mb": 0,
            "healthy": True,
            "detail": "sees 3 brokers",
            "log": "",
        }
    ]
    assert told["components"][1] == {
        "name": "etl",
        "state": "running",
        "detail": "well",
        "pid": 7,
        "heard_at_ms": NOW_MS,
    }
