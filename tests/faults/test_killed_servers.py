"""Any server of the stack is away for minutes, one after the other, twice, under load: no component
ends, and nothing is lost.

The demo's own story with other trouble in its middle: tailer, service, driver and `hourmark mirror
run` as processes of their own, files that grow, and events that come over HTTP all the time.
MirrorMaker 2, a child, is started again by its supervisor.

    hourmark test --long tests/faults/test_killed_servers.py

`HOURMARK_CHAOS_AWAY_S` and `HOURMARK_CHAOS_ROUNDS`: for how long, and how often, if not as a run of
the suite has it.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

import psutil
import pytest
from tests.support.api_traffic import ApiTraffic
from tests.support.servers import come_back
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark_infra.jars.cache import print_progress
from hourmark_infra.stack import LocalStack
from hourmark_verify.demo.demo import Demo, DemoOptions, DemoResult
from hourmark_verify.demo.traffic import Traffic
from hourmark_verify.judge.expectations import ApiEvent

pytestmark = [pytest.mark.stack, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(7200)]

AWAY_S = float(os.environ.get("HOURMARK_CHAOS_AWAY_S") or 90)
ROUNDS = int(os.environ.get("HOURMARK_CHAOS_ROUNDS") or 2)
SERVERS = ("edge-1", "edge-2", "edge-3", "central-1", "namenode", "datanode", "registry")
MIRROR_MAKER = "MirrorMaker 2"
BETWEEN_S = 15.0  # with all servers up: what waited goes on
BEGUN_S = 600.0
API_TYPE = "pinged"
_DECLARATION = (
    f'name = "{API_TYPE}"\ndoc = "An event over HTTP."\nfields = [{{ name = "number", type = '
    f'"long" }}]\n'
)


def each_server_is_killed(demo: Demo, traffic: Traffic, stack: LocalStack, config: Config) -> None:
    """The trouble of this run."""
    (demo.work / "types" / f"{API_TYPE}.toml").write_text(_DECLARATION)
    demo.components.run_repeatable("types", "apply", seconds=180.0)
    api = ApiTraffic(config.tailer.service_urls, API_TYPE, demo.posted)
    api.start()
    etl_log = demo.components.log("etl")
    demo.wait_until(
        lambda: " closed as " in etl_log.read_text(errors="replace"),
        "the first bucket to be closed",
        BEGUN_S,
    )
    supervisor = stack.process("mirror")
    for _ in range(ROUNDS):
        for name in (*SERVERS, MIRROR_MAKER):
            before = len(demo.posted)
            demo.report_progress(
                f"SIGKILL for {name}; {traffic.written:,} lines written, {before:,} "
                "events taken over HTTP"
            )
            if name == MIRROR_MAKER:
                kill_mirror_maker(stack)
            else:
                stack.kill(name)
                demo.pause(AWAY_S)
                come_back(stack, name)
            assert stack.process("mirror") == supervisor, (
                f"`hourmark mirror run` ended while {name} was away"
            )
            demo.wait_until(
                lambda taken=before: len(demo.posted) > taken,  # type: ignore[misc]
                f"an event to be taken after {name} came back",
                180,
            )
            demo.pause(BETWEEN_S)
    api.stop()


def kill_mirror_maker(stack: LocalStack) -> None:
    """SIGKILL the child, and wait until its supervisor has started another."""

    def children() -> list[psutil.Process]:
        parent = stack.process("mirror")
        assert parent is not None, "`hourmark mirror run` has ended"
        with contextlib.suppress(psutil.NoSuchProcess):
            return [
                p
                for p in psutil.Process(parent.pid).children()
                if p.status() != psutil.STATUS_ZOMBIE
            ]
        return []

    wait_for(lambda: bool(children()), "MirrorMaker 2 runs", 120)
    (child,) = children()
    child.kill()
    wait_for(
        lambda: any(p.pid != child.pid for p in children()), "MirrorMaker 2 is started again", 180
    )


def span_buckets() -> int:
    """Minutes of traffic: for as long as servers are killed."""
    return math.ceil(ROUNDS * (len(SERVERS) * (AWAY_S + 20 + BETWEEN_S) + 40) / 60) + 3


def everything_arrived(result: DemoResult, posted: list[ApiEvent]) -> None:
    """The judge is content: each line and each event over HTTP stands once, in buckets that are
    proved, and nothing else does.
    """
    assert result.report.passed, result.report.as_text()
    assert result.report.posted == len(posted) > 0


def test_no_component_ends_and_the_judge_is_content_after_each_server_was_away_for_minutes(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    demo = Demo(
        home,
        DemoOptions(rate=50, buckets=span_buckets(), keep=True),
        SystemClock(),
        print_progress,
        each_server_is_killed,
    )
    try:
        everything_arrived(demo.run(), demo.posted)
    finally:
        demo.components.stop_all()
        with contextlib.suppress(Exception):
            LocalStack.load(home).down()
