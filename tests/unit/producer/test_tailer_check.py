"""`hourmark tail --check` names what would keep a tailer from its work, and changes nothing."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.tailer.host import Host, lines
from tests.support.tailer.recorder import Recorder

from hourmark.cli import root
from hourmark.errors import ConfigError, UsageError


def checked(config: Path, *, code: int = 0) -> dict[str, Any]:
    """By subject, level and text."""
    done = CliRunner().invoke(
        root, ["tail", "--config", str(config), "--check", "--json"], catch_exceptions=False
    )
    assert done.exit_code == code, done.output
    told = json.loads(done.stdout)
    assert told["ok"] is (code == 0)
    return {
        answer["subject"].partition(" http")[0]: (answer["level"], answer["said"])
        for answer in told["checks"]
    }


def source(paths: str, more: str = "") -> str:
    return f'[[tailer.sources]]\nname = "app"\npaths = ["{paths}"]\n{more}'


def test_a_start_that_would_go_well_leaves_no_trace(
    host: Host, recorder: Recorder, tmp_path: Path
) -> None:
    host.append(lines(10))
    config = host.configured(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    found = checked(config)
    assert [level for level, _ in found.values()] == ["well"] * 3
    assert "1 files, 230 bytes" in found["source app"][1]
    assert "the first start" in found["tailer.state_dir"][1]
    assert (sorted(tmp_path.rglob("*")), recorder.text()) == (before, b"")
    host.drain()
    assert "1 files are known" in checked(config)["tailer.state_dir"][1]


def test_what_cannot_be_looked_at_is_an_error_and_what_is_not_there_yet_a_warning(
    host: Host, tmp_path: Path
) -> None:
    found = checked(host.configured(tmp_path, source(f"{host.logs}/none*.log")))
    assert found["source app"][0] == "warning"
    found = checked(host.configured(tmp_path, source(f"{tmp_path}/unmounted/*.log")), code=1)
    assert found["source app"][0] == "error" and "unmounted" in found["source app"][1]


def test_excluded_files_are_not_counted(host: Host, tmp_path: Path) -> None:
    host.append(lines(1))
    host.append(lines(1), host.logs / "app.log.debug")
    found = checked(host.configured(tmp_path, source(f"{host.logs}/*", 'exclude = ["*.debug"]')))
    assert found["source app"][1].startswith("1 files")


def test_a_service_that_is_away_is_a_warning_as_lines_wait_for_it(
    host: Host, tmp_path: Path
) -> None:
    host.settings["service_urls"] = ["http://127.0.0.1:9"]
    found = checked(host.configured(tmp_path))
    assert found["service"][0] == "warning" and "lines wait" in found["service"][1]


def test_a_lost_checkpoint_a_folder_that_is_none_and_a_token_that_is_none_are_errors(
    host: Host, tmp_path: Path
) -> None:
    host.drain(lines(1))
    config = host.configured(tmp_path)
    (host.state / "checkpoint.sqlite").rename(tmp_path / "away")
    assert "no checkpoint" in checked(config, code=1)["tailer.state_dir"][1]
    (host.state / "checkpoint.sqlite").write_bytes(b"no database")
    assert checked(config, code=1)["tailer.state_dir"][0] == "error"
    (tmp_path / "file").touch()
    host.state = tmp_path / "file" / "state"
    assert (
        str(tmp_path / "file") in checked(host.configured(tmp_path), code=1)["tailer.state_dir"][1]
    )
    (tmp_path / "token").write_text("no token\n")
    text = config.read_text().replace("[tailer]\n", f'[tailer]\ntoken_file = "{tmp_path}/token"\n')
    config.write_text(text)
    assert "contains no valid token" in checked(config, code=1)["service"][1]


def test_a_wrong_setting_is_named_and_more_options_are_refused(host: Host, tmp_path: Path) -> None:
    config = host.configured(tmp_path, source("relative/*.log"))
    with pytest.raises(ConfigError, match=r"tailer.sources.0.paths = 'relative"):
        checked(config)
    with pytest.raises(UsageError, match="--check only checks"):
        CliRunner().invoke(
            root, ["tail", "--config", str(config), "--check", "--drain"], catch_exceptions=False
        )


def test_each_pattern_that_matches_nothing_is_a_warning_that_says_why(
    host: Host, tmp_path: Path
) -> None:
    host.append(lines(1))
    host.append(lines(1), host.logs / "old.log.gz")
    patterns = [
        f"{host.logs}/app.log",
        f"{host.logs}/none.log",
        f"{host.logs}/old*",
        f"{host.logs}/**.log2",
        f"{host.logs}/$APP",
    ]
    listed = ", ".join(f'"{pattern}"' for pattern in patterns)
    config = host.configured(tmp_path, f'[[tailer.sources]]\nname = "app"\npaths = [{listed}]\n')
    done = CliRunner().invoke(
        root, ["tail", "--config", str(config), "--check", "--json"], catch_exceptions=False
    )
    answers = [one for one in json.loads(done.stdout)["checks"] if one["subject"] == "source app"]
    said = [one["said"] for one in answers if one["level"] == "warning"]
    assert [pattern in text for pattern, text in zip(patterns[1:], said, strict=True)] == [True] * 4
    assert (
        "compressed" in said[1] and "whole part" in said[2] and "environment variables" in said[3]
    )
    assert [one["level"] for one in answers].count("well") == 1


def test_an_address_that_is_taken_is_an_error(host: Host, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = (
            '[[tailer.sources]]\nname = "net"\ninput = '
            f'"syslog+tcp://127.0.0.1:{taken.getsockname()[1]}"\n'
        )
        found = checked(host.configured(tmp_path, text), code=1)
    assert found["input"][0] == "error" and "cannot listen on" in found["input"][1]
