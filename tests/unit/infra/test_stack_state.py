"""Whose process is it: a pid alone says nothing, and nobody else's process is ever signalled."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.waiting import wait_for

from hourmark.clock import SystemClock
from hourmark.errors import HourmarkError, UsageError
from hourmark_infra.stack import LocalStack, control
from hourmark_infra.stack.control import purge_stack
from hourmark_infra.stack.lifecycle import server_error, stop_processes
from hourmark_infra.stack.local_servers import local_servers
from hourmark_infra.stack.process import (
    Process,
    find_by_mark,
    find_by_mark_prefix,
    is_alive,
    send_signal,
    spawn,
    start_id,
    wait_for_exit,
)
from hourmark_infra.stack.state import load_state, new_state, save_state, state_file


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of ours."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def _spawn(tmp_path: Path, code: str) -> Process:
    return spawn(
        [sys.executable, "-c", code],
        dict(os.environ),
        f"{tmp_path}::fake",
        tmp_path / "logs" / "fake.log",
    )


def _wait_until_on(tmp_path: Path) -> None:
    wait_for(lambda: "on" in (tmp_path / "logs" / "fake.log").read_text(), "the process says so")


def test_state_survives_a_round_trip(tmp_path: Path) -> None:
    state = new_state().with_process("edge-1", Process(42, "boot:1"))
    save_state(tmp_path, state)
    assert load_state(tmp_path) == state


def test_a_server_that_starts_ends_the_time_at_which_the_stack_was_stopped(tmp_path: Path) -> None:
    stopped = dataclasses.replace(new_state(), stopped_at_ms=7).with_process("edge-1", None)
    assert stopped.stopped_at_ms == 7
    assert stopped.with_process("edge-1", Process(42, "boot:1")).stopped_at_ms is None


def test_a_stack_that_was_stopped_says_so_and_lists_no_dead_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOURMARK_HOME", str(tmp_path))
    save_state(tmp_path, new_state())
    stack = LocalStack.load(tmp_path)
    assert len(local_servers(None) or ()) == len(stack.names), "it was never started"
    assert set(stack.down().values()) == {"not running"}
    found, *others = local_servers(None) or []
    assert others == []
    assert found.is_stopped and found.detail.startswith("`hourmark down` stopped its servers at 2")
    assert "`hourmark up`" in found.do and "`hourmark run`" in found.do


def test_no_state_is_no_stack(tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    with pytest.raises(UsageError, match="hourmark up"):
        LocalStack.load(tmp_path)


def test_a_stack_is_stopped_and_deleted_although_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_state(tmp_path, new_state())
    started = _spawn(tmp_path, "import time; print('on', flush=True); time.sleep(60)")
    _wait_until_on(tmp_path)
    stack = LocalStack.load(tmp_path, print)
    monkeypatch.setattr(control, "find_by_mark", lambda mark: [started] * ("::edge-1" in mark))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert stack.down()["edge-1"] == "stopped"
    assert purge_stack(tmp_path, print)
    assert not state_file(tmp_path).exists()


def test_a_failure_of_a_server_names_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_state(tmp_path, new_state())
    server = LocalStack.load(tmp_path, print).server("edge-1")
    server.log.parent.mkdir()
    assert "MB left" not in str(server_error(server, "exited unexpectedly"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3_000_000))
    assert f"the disk of {server.log.parent} has only 3 MB left" in str(
        server_error(server, "exited unexpectedly")
    )


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version": 99}', '{"version": 1, "processes": {}}']
)
def test_an_unreadable_state_is_an_error_with_a_next_step(tmp_path: Path, content: str) -> None:
    state_file(tmp_path).parent.mkdir()
    state_file(tmp_path).write_text(content)
    with pytest.raises(HourmarkError, match="manually"):
        load_state(tmp_path)


def test_ports_are_distinct_and_no_outgoing_connection_is_given_them() -> None:
    ports = list(new_state().ports.values())
    assert len(set(ports)) == len(ports)
    assert all(20_000 <= port < 32_000 for port in ports)


def test_a_recycled_pid_is_not_ours_and_not_killed(stranger: subprocess.Popen[bytes]) -> None:
    recycled = Process(stranger.pid, "boot-before:12345")
    assert not is_alive(recycled)
    assert not send_signal(recycled, signal.SIGKILL)
    assert stop_processes([recycled], SystemClock(), seconds=1)
    assert stranger.poll() is None


def test_a_daemon_is_found_by_its_mark_without_its_pid(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    process = _spawn(tmp_path, "import time; time.sleep(60)")
    assert find_by_mark_prefix(f"{tmp_path}::") == {f"{tmp_path}::fake": [process]}
    assert stop_processes([process], SystemClock())
    assert find_by_mark_prefix(f"{tmp_path}::") == {}
    assert stranger.poll() is None


def test_a_daemon_has_its_mark_as_soon_as_it_was_started(tmp_path: Path) -> None:
    for number in range(40):
        process = spawn(
            ["/bin/sleep", "60"],
            dict(os.environ),
            f"{tmp_path}::{number}",
            tmp_path / "logs" / "fake.log",
        )
        assert find_by_mark(f"{tmp_path}::{number}") == [process]
        send_signal(process, signal.SIGKILL)


def test_children_of_a_killed_parent_are_found_by_the_same_mark(tmp_path: Path) -> None:
    code = (
        "import subprocess, time; subprocess.Popen(['sleep', '60']); print('on', "
        "flush=True); time.sleep(60)"
    )
    parent = _spawn(tmp_path, code)
    clock = SystemClock()
    _wait_until_on(tmp_path)
    send_signal(parent, signal.SIGKILL)
    assert wait_for_exit(parent, 5, clock)
    (children,) = find_by_mark_prefix(f"{tmp_path}::").values()
    assert parent not in children
    stop_processes(children, clock)
    assert find_by_mark_prefix(f"{tmp_path}::") == {}


def test_one_that_ignores_sigterm_is_killed_after_a_bounded_wait(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); "
        "time.sleep(60)"
    )
    process = _spawn(tmp_path, code)
    _wait_until_on(tmp_path)
    assert not stop_processes([process], SystemClock(), seconds=0.2)
    assert not is_alive(process)


def test_a_process_that_ended_is_not_alive_even_before_it_is_reaped(tmp_path: Path) -> None:
    process = _spawn(tmp_path, "pass")
    assert wait_for_exit(process, 10, SystemClock())
    assert start_id(process.pid) is None
