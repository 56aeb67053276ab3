"""The tailer of this host for `status` and `doctor`: its conditions, such as blocked ranges, with
their begin.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.support.tailer.host import Host, lines

from hourmark.commands.component_status import (
    ComponentState,
    ComponentStatus,
    list_problems,
)
from hourmark.commands.problems import order_problems, silent_host_problem
from hourmark.config.loading import Config, load_config
from hourmark.state_folder import StateFolder
from hourmark_producer.report.component_status import local_tailer
from hourmark_producer.report.snapshot import (
    ConditionSnapshot,
    TailerSnapshot,
    save_snapshot,
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def snapshot(pid: int, written_at_ms: int, *troubles: ConditionSnapshot) -> TailerSnapshot:
    return TailerSnapshot(
        pid=pid,
        started_at_ms=1,
        written_at_ms=written_at_ms,
        delivered_at_ms=None,
        reported_at_ms=None,
        lag_seconds={},
        troubles=list(troubles),
        latest_trouble=None,
    )


def configured(host: Host, tmp_path: Path) -> Config:
    return load_config(host.configured(tmp_path))


def test_a_host_without_a_tailer_has_no_problem(tmp_path: Path) -> None:
    config = Config.model_validate({"tailer": {"state_dir": str(tmp_path / "none")}})
    found = local_tailer(config, now_ms())
    assert (found.state, found.problems) == (ComponentState.NOT_RUNNING, ())


def test_a_blocked_range_is_a_problem_with_its_begin(host: Host, tmp_path: Path) -> None:
    host.drain(lines(10))
    since_ms = now_ms() - 60_000
    blocked = ConditionSnapshot(since_ms=since_ms, message="app.log: range 7 was answered 409")
    with StateFolder(host.state, "tailer").lock():
        save_snapshot(host.state, snapshot(os.getpid(), now_ms(), blocked))
        found = local_tailer(configured(host, tmp_path), now_ms())
    (problem,) = found.problems
    assert (found.state, found.pid) == (ComponentState.RUNNING, os.getpid())
    assert (problem.what, problem.since_ms) == (blocked.message, since_ms)
    assert "`hourmark tail status`" in problem.do


def test_what_a_tailer_reports_here_stands_for_the_reports_that_do_not_arrive(
    host: Host, tmp_path: Path
) -> None:
    host.drain(lines(10))
    refused = ConditionSnapshot(since_ms=now_ms() - 60_000, message="answered 401: revoked")
    other = ConditionSnapshot(since_ms=now_ms() - 60_000, message="cannot scan /var/log/x")
    with StateFolder(host.state, "tailer").lock():
        save_snapshot(host.state, snapshot(os.getpid(), now_ms(), refused, other))
        here = local_tailer(configured(host, tmp_path), now_ms())
    host_id = here.problems[0].key.removeprefix("host:")
    silent = silent_host_problem("tailer", "web-1", host_id, now_ms() - 90_000)
    tailers = ComponentStatus(ComponentState.SILENT, "silent: web-1", problems=(silent,))
    found = order_problems(list_problems({"tailers": tailers, "types": tailers, "this host": here}))
    assert {problem.what for problem in found} == {other.message, refused.message}


def test_a_tailer_that_hangs_is_named_within_30_seconds(host: Host, tmp_path: Path) -> None:
    host.drain(lines(10))
    with StateFolder(host.state, "tailer").lock():
        for age_s, problems in ((15, 0), (21, 1)):
            save_snapshot(host.state, snapshot(os.getpid(), now_ms() - age_s * 1000))
            found = local_tailer(configured(host, tmp_path), now_ms())
            assert len(found.problems) == problems
    assert "has not updated its status for" in found.problems[0].what


def test_bytes_that_wait_while_no_tailer_runs_are_a_problem_of_its_host(
    host: Host, tmp_path: Path
) -> None:
    host.drain(lines(10))
    host.append(lines(5, 10))
    (problem,) = local_tailer(configured(host, tmp_path), now_ms()).problems
    assert "no tailer is running, and 115 bytes are waiting" in problem.what
    assert problem.key.startswith("host:"), "the same host that its reports name"
