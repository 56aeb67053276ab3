"""`hourmark up`, `status`, `down` on the real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.config.loading import Config
from hourmark.errors import UsageError
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.process import Process, find_by_mark_prefix, is_alive
from hourmark_infra.stack.state import load_state, save_state

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("mirror_runs")]


def _hourmark(stack: LocalStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*arguments), env=_environment(stack), capture_output=True, text=True, check=False
    )


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "hourmark", *arguments]


def _environment(stack: LocalStack) -> dict[str, str]:
    return {**os.environ, "HOURMARK_HOME": str(stack.home)}


def _up_arguments(stack: LocalStack) -> list[str]:
    return ["up", "--mirror" if "mirror" in stack.names else "--no-mirror"]


def _pids(stack: LocalStack) -> dict[str, int]:
    return {name: process.pid for name in stack.names if (process := stack.process(name))}


def _told(stack: LocalStack, *arguments: str, code: int | None = None) -> dict[str, Any]:
    """What the command says as JSON, ended with this code, where one is named."""
    done = _hourmark(stack, *arguments, "--json")
    assert code in (None, done.returncode), done.stderr
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_status_shows_every_server_well_within_its_memory(stack: LocalStack) -> None:
    found = _told(stack, "status")  # hosts that other tests killed may be problems
    assert [p for p in found["problems"] if p["cause"] == "server"] == []
    assert {server["name"] for server in found["servers"]} == set(stack.names)
    assert all(
        server["pid"] and server["healthy"] and server["memory_mb"] for server in found["servers"]
    )
    assert found["memory_mb"] < 5 * 1024


def _component(stack: LocalStack, name: str) -> dict[str, Any]:
    return next(c for c in _told(stack, "status")["components"] if c["name"] == name)


def _is_told(stack: LocalStack, name: str, state: str, pid: int | None, detail: str = "") -> None:
    """`status` says so (state "": that none runs); on a busy machine a component may miss its time
    to answer, once or twice.
    """
    seen: list[dict[str, Any]] = []

    def told() -> bool:
        seen.append(_component(stack, name))
        stands = seen[-1]["state"] == state if state else seen[-1]["state"] != "running"
        return stands and seen[-1]["pid"] == pid and detail in seen[-1]["detail"]

    try:
        wait_for(told, f"status tells of {name}: {state}", 60)
    except AssertionError as error:
        raise AssertionError(f"{error}; it said {seen[-1]}") from error


def test_status_shows_each_component_of_hourmark_as_it_stands(
    stack: LocalStack, config: Config
) -> None:
    shown = _told(stack, "status")["components"]
    assert [component["name"] for component in shown] == ["service", "mirror", "etl", "tailers"]
    if "mirror" in stack.names:
        mirror = stack.process("mirror")
        assert mirror is not None
        _is_told(stack, "mirror", "running", mirror.pid, "copied")  # its progress
    with subprocess.Popen(
        _command("serve"),
        env=_environment(stack),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as serve:
        try:
            assert serve.stdout is not None
            assert (
                serve.stdout.readline().strip()
                == f"http://{stack.layout.address('service')}".encode()
            )
            _is_told(stack, "service", "running", serve.pid, stack.layout.address("service"))
        finally:
            serve.terminate()
    _is_told(stack, "service", "", None)
    words = _hourmark(stack, "status").stdout
    assert all(f"\n{component['name']:<12} " in words for component in shown)


@pytest.mark.parametrize("options", [(), ("--no-restart",)])
def test_a_second_mirror_is_refused_in_one_line_that_names_the_first(
    stack: LocalStack, options: tuple[str, ...]
) -> None:
    process = stack.process("mirror")
    if process is None:
        pytest.skip("this stack has no mirror")
    done = subprocess.run(
        _command("mirror", "run", *options),
        env=_environment(stack),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"process {process.pid}" in line and "`hourmark mirror lag`" in line


def test_up_twice_changes_nothing(stack: LocalStack) -> None:
    before = _pids(stack)
    found = _told(stack, *_up_arguments(stack))
    assert {server["state"] for server in found["servers"]} == {"running"}
    assert _pids(stack) == before


def test_a_killed_server_shows_and_up_starts_it_alone(stack: LocalStack) -> None:
    before = _pids(stack)
    stack.kill("edge-2")
    shown = _told(stack, "status", code=1)
    assert [server["name"] for server in shown["servers"] if not server["pid"]] == ["edge-2"]
    found = _told(stack, *_up_arguments(stack))
    assert [server["name"] for server in found["servers"] if server["state"] == "started"] == [
        "edge-2"
    ]
    after = _pids(stack)
    assert after.pop("edge-2") != before.pop("edge-2")
    assert after == before


def test_kill_start_and_wait_ready_bring_one_server_back(stack: LocalStack) -> None:
    stack.kill("datanode")
    assert stack.process("datanode") is None
    stack.start("datanode")
    assert stack.wait_ready("datanode").ok


def test_an_unknown_server_is_refused_with_the_names_there_are(stack: LocalStack) -> None:
    with pytest.raises(UsageError, match="edge-1"):
        stack.kill("edge-9")


def test_a_killed_up_leaves_nothing_that_the_next_cannot_take_over(stack: LocalStack) -> None:
    clock = SystemClock()
    stack.kill("edge-3")
    stack.kill("registry")
    with subprocess.Popen(
        _command(*_up_arguments(stack)), env=_environment(stack), stderr=subprocess.DEVNULL
    ) as up:
        while not find_by_mark_prefix(f"{stack.layout.root}::edge-3"):
            clock.sleep(0.01)
        up.send_signal(signal.SIGKILL)
    state = load_state(stack.home)
    assert state is not None
    save_state(
        stack.home, state.with_process("edge-3", None)
    )  # as if it had been killed before it could write the pid
    stack.up()
    assert all(server.healthy for server in stack.status())
    assert (
        len(find_by_mark_prefix(f"{stack.layout.root}::edge-3")[f"{stack.layout.root}::edge-3"])
        == 1
    )


@pytest.mark.long
def test_down_ends_only_its_own_and_data_outlive_it(stack: LocalStack, config: Config) -> None:
    admin = AdminClient({"bootstrap.servers": config.kafka.edge.bootstrap})
    for made in admin.create_topics([NewTopic("stack-outlives-down", 1, 3)]).values():
        made.result()
    ports = stack.layout.ports
    with (
        subprocess.Popen(["sleep", "300"]) as stranger,
        subprocess.Popen(_another_java(stack)) as java,
    ):
        try:
            state = load_state(stack.home)
            assert state is not None
            recycled = Process(stranger.pid, "boot-before:1")
            stack.kill("registry")
            save_state(stack.home, state.with_process("registry", recycled))
            found = _told(stack, "down")["servers"]
            assert found.pop("registry") == "not running"
            assert set(found.values()) == {"stopped"}
            assert not find_by_mark_prefix(f"{stack.layout.root}::")
            assert stranger.poll() is None
            assert java.poll() is None
        finally:
            stranger.kill()
            java.kill()
    assert not any(is_alive(stack.process(name)) for name in stack.names)
    assert _hourmark(stack, *_up_arguments(stack)).returncode == 0
    assert stack.layout.ports == ports
    again = AdminClient({"bootstrap.servers": config.kafka.edge.bootstrap})
    assert "stack-outlives-down" in again.list_topics(timeout=20).topics
    for deleted in again.delete_topics(["stack-outlives-down"]).values():
        deleted.result()


def _another_java(stack: LocalStack) -> list[str]:
    """A java that looks like a broker, on the same jars, and is none of the stack's: it reads its
    commands from nowhere.
    """
    tool = [
        "-Xmx64m",
        "-cp",
        stack.programs.kafka_classpath,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
    ]
    return [str(stack.programs.java), *tool, "--bootstrap-server", "127.0.0.1:1", "--topic", "none"]


def test_purge_asks_before_it_deletes(stack: LocalStack) -> None:
    done = subprocess.run(
        _command("purge"),
        env=_environment(stack),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert stack.process("edge-1") is not None
