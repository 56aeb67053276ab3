"""`hourmark status` as a command: on hosts without a local stack, with servers that are away."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hourmark.commands.server_status import ServerStatus, remote_server_statuses
from hourmark.commands.status import status
from hourmark.config.loading import Config
from hourmark.errors import Unavailable, UsageError

HERE = "tests.unit.core.commands.test_status"
LOG_HOST = """
[tailer]
state_dir = "{folder}/tailer"
service_urls = ["http://127.0.0.1:1"]
sources = [{{name = "app", paths = ["{folder}/*.log"]}}]
[service]
port = 1
state_dir = "{folder}/service"
[etl]
ledger = "sqlite:///{folder}/ledger.sqlite"
metrics_port = 0
[storage]
root = "file://{folder}/root"
"""


def healthy(_: Config) -> list[ServerStatus]:
    return [ServerStatus(name="kafka", address="a:1", healthy=True, detail="answers")]


def is_away(_: Config) -> list[ServerStatus]:
    raise Unavailable("nobody answers at http://me:secret@host")


def hangs(_: Config) -> list[ServerStatus]:
    time.sleep(5)
    return []


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a local stack, and without a configuration in the current folder."""
    monkeypatch.setenv("HOURMARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HOURMARK_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(status, [*arguments])


def test_without_a_configuration_and_a_stack_the_next_step_is_said() -> None:
    done = run()
    assert isinstance(done.exception, UsageError)
    assert "--config" in str(done.exception) and "`hourmark up`" in str(done.exception)


@pytest.mark.slow
def test_a_host_whose_configuration_names_no_server_looks_for_no_stack_and_is_well(
    tmp_path: Path,
) -> None:
    file = tmp_path / "hourmark.toml"
    file.write_text(LOG_HOST.format(folder=tmp_path))
    done = run("--config", str(file), "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["ok"], told["problems"]) == (0, True, [])
    assert [server["name"] for server in told["servers"]] == ["storage"]
    assert told["config"] == str(file)
    assert {c["name"]: c["state"] for c in told["components"]}["etl"] == "unknown"


@pytest.mark.slow
def test_servers_of_the_configuration_that_are_away_are_problems_within_bounded_time(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as suspended:  # accepts, and never answers
        port = suspended.getsockname()[1]
        file = tmp_path / "hourmark.toml"
        file.write_text(
            LOG_HOST.format(folder=tmp_path).replace(
                f'root = "file://{tmp_path}/root"',
                f'root = "hdfs://127.0.0.1:1/x"\nwebhdfs = "http://127.0.0.1:{port}"',
            )
            + f'[kafka.edge]\nbootstrap = "127.0.0.1:1,127.0.0.1:{port}"\n'
        )
        done = run("--config", str(file), "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 1
    found = [(p["cause"], p["subject"]) for p in told["problems"]]
    assert {
        ("server", "edge broker (127.0.0.1:1)"),
        ("server", f"edge broker (127.0.0.1:{port})"),
        ("server", f"namenode (http://127.0.0.1:{port})"),
    } <= set(found)
    assert all(p["do"] for p in told["problems"])
    assert told["verdict"].startswith("TROUBLE: ")


def test_only_configured_groups_are_asked_and_one_that_hangs_or_fails_keeps_no_other() -> None:
    config = Config.model_validate(
        {
            "kafka": {"edge": {"bootstrap": "a:1"}},
            "registry": {"url": "http://a"},
            "storage": {"root": "file:///a"},
        }
    )
    table = {
        "kafka": f"{HERE}:healthy",
        "registry": f"{HERE}:hangs",
        "storage": f"{HERE}:is_away",
        "mirror": f"{HERE}:healthy",
    }
    began_s = time.monotonic()
    found = remote_server_statuses(config, table, seconds=0.5)
    assert time.monotonic() - began_s < 4
    assert [(s.name, s.healthy) for s in found] == [
        ("kafka", True),
        ("registry", False),
        ("storage", False),
    ]
    assert found[1].detail == "no answer within 0.5 s" and "secret" not in found[2].detail


def test_what_is_not_installed_is_left_out() -> None:
    config = Config.model_validate({"kafka": {"edge": {"bootstrap": "a:1"}}})
    assert remote_server_statuses(config, {"kafka": "no_such_room.servers:it"}) == []


def test_watch_and_json_exclude_each_other() -> None:
    assert isinstance(run("--watch", "--json").exception, UsageError)


@pytest.mark.slow
def test_watch_shows_the_verdict_again_and_again(tmp_path: Path) -> None:
    file = tmp_path / "hourmark.toml"
    file.write_text(LOG_HOST.format(folder=tmp_path))
    command = [sys.executable, "-P", "-m", "hourmark", "status", "--watch", "1"]
    with subprocess.Popen(
        [*command, "--config", str(file)], stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as watching:
        assert watching.stdout is not None
        try:
            lines = iter(watching.stdout.readline, "")
            verdicts = (line for line in lines if line.startswith("WELL: "))
            assert next(verdicts) == next(verdicts)
        finally:
            watching.terminate()
