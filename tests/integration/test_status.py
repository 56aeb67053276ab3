"""`hourmark status` on real servers: whatever dies or hangs is named within 30 seconds, with the next
step, and is no longer named once it is back; it works without the local stack's state, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.etl import EtlRun
from tests.support.service.live import Serving, serving
from tests.support.waiting import wait_for

from hourmark.commands.problems import CauseClass, Problem
from hourmark.commands.status import read_report
from hourmark.config.loading import Config
from hourmark_infra.stack import LocalStack

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.usefixtures("mirror_runs")]
TYPES = ("watched",)
NAMED_S = 30.0
BACK_S = 120.0  # until it is no longer named: servers start again


@pytest.fixture(autouse=True)
def of_the_stack(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOURMARK_HOME", str(stack.home))


@pytest.fixture(scope="module")
def service(
    stack: LocalStack, config: Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    with serving(stack, config, tmp_path_factory.mktemp("service")) as started:
        yield started


def problem(file: Path, subject: str) -> Problem | None:
    """The one whose subject contains it."""
    return next((p for p in read_report(file).problems if subject in p.subject), None)


def named(file: Path, subject: str, fault: Callable[[], None]) -> Problem:
    """What is reported of the subject after the fault; within the time that is promised."""
    assert problem(file, subject) is None
    fault()
    began_s = time.monotonic()
    found: Problem | None = None
    while found is None and time.monotonic() - began_s < 3 * NAMED_S:
        found = problem(file, subject)
    seconds = time.monotonic() - began_s
    assert found is not None, f"{subject} was not named within {seconds:.0f} s"
    print(f"{subject} was named after {seconds:.1f} s: {found.what}")
    assert seconds <= NAMED_S
    return found


def killed(service: Serving) -> None:
    assert service.end(signal.SIGKILL) == -signal.SIGKILL


def forgotten(file: Path, subject: str) -> None:
    wait_for(lambda: problem(file, subject) is None, f"{subject} is no longer named", BACK_S)


def test_a_driver_that_is_suspended_or_killed_is_named(run: EtlRun) -> None:
    wait_for(lambda: run.logged("metrics at"), "the driver has begun", 300)
    wait_for(lambda: problem(run.file, "etl driver") is None, "it writes heartbeats", BACK_S)
    found = named(run.file, "etl driver", lambda: os.kill(run.pid, signal.SIGSTOP))
    assert "it hangs" in found.what and "SIGCONT" in found.do
    os.kill(run.pid, signal.SIGCONT)
    forgotten(run.file, "etl driver")
    found = named(run.file, "etl driver", run.kill)
    assert "no driver is running" in found.what and "`hourmark etl run`" in found.do
    assert found.since_ms is not None and found.cause is CauseClass.COMPONENT


def test_a_broker_that_is_suspended_or_killed_is_named(stack: LocalStack) -> None:
    file = stack.layout.config_file
    found = named(file, "edge-2", lambda: stack.send_signal("edge-2", signal.SIGSTOP))
    assert "`hourmark up`" in found.do
    stack.send_signal("edge-2", signal.SIGCONT)
    forgotten(file, "edge-2")
    try:
        named(file, "edge-2", lambda: stack.kill("edge-2"))
    finally:
        stack.up()
    forgotten(file, "edge-2")


def test_without_the_stacks_state_the_brokers_of_the_configuration_are_asked(
    stack: LocalStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOURMARK_HOME", str(tmp_path))
    file = stack.layout.config_file
    address = stack.layout.address("edge-3")
    servers = {(s.name, s.address) for s in read_report(file).servers}
    assert {
        ("edge broker", address),
        ("namenode", f"http://{stack.layout.address('namenode-http')}"),
    } <= servers
    try:
        found = named(file, address, lambda: stack.kill("edge-3"))
        assert found.cause is CauseClass.SERVER
    finally:
        monkeypatch.setenv("HOURMARK_HOME", str(stack.home))
        stack.up()


def test_a_service_that_was_killed_is_named(
    stack: LocalStack, service: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOURMARK_SERVICE__STATE_DIR", str(service.folder / "state"))
    monkeypatch.setenv("HOURMARK_SERVICE__PORT", str(service.port))
    file = stack.layout.config_file
    found = named(file, f"127.0.0.1:{service.port}", lambda: killed(service))
    assert "it was killed or it failed" in found.what and "`hourmark serve`" in found.do
    service.start()
    forgotten(file, f"127.0.0.1:{service.port}")


def test_a_suspended_mirror_is_named(stack: LocalStack, service: Serving) -> None:
    if "mirror" not in stack.names:
        pytest.skip("this stack has no mirror")
    file = stack.layout.config_file
    forgotten(file, "mirror")
    found = named(file, "mirror", lambda: stack.send_signal("mirror", signal.SIGSTOP))
    stack.send_signal("mirror", signal.SIGCONT)
    # by what it does not copy, or, on a slow machine, by its REST API, which does not answer
    assert (found.key, bool(found.do)) == ("mirror", True)
    forgotten(file, "mirror")


def test_the_command_ends_with_1_and_says_so_first_where_something_is_dead(
    stack: LocalStack,
) -> None:
    stack.kill("registry")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "hourmark", "status", "--json"],
            env={**os.environ, "HOURMARK_HOME": str(stack.home)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        stack.up()
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (1, False)
    assert told["verdict"].startswith("TROUBLE: registry ")
