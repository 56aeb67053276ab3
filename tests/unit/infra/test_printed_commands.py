"""Commands that are printed to be copied work where a path has a space, or worse."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
from pathlib import Path

import pytest
from tests.support.clock import FakeClock

from hourmark.errors import UsageError
from hourmark_infra.components import Components
from hourmark_infra.running.cli import describe_outcome
from hourmark_infra.running.run import RunOutcome
from hourmark_verify.demo.cli import inspection_commands

_run = runpy.run_path(str(Path(__file__).parents[3] / "infra" / "launcher" / "make_venv.py"))[
    "_run"
]  # no module of a package
FOLDERS = ("plain", "my checkout", 'it\'s "$HOME" & `me`')


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = tmp_path / str(request.param)
    made.mkdir()
    return made


def _as_pasted(command: str, folder: Path) -> str:
    """What a shell runs, in a checkout whose `./hourmark` only says how it was called."""
    program = folder / "hourmark"
    program.write_text('#!/bin/sh\nprintf \'[%s]\' "${HOURMARK_HOME:-}" "$@"\n')
    program.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if name != "HOURMARK_HOME"}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=clean, capture_output=True, text=True, check=True
    ).stdout


def test_the_demo_s_last_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOURMARK_HOME", raising=False)
    home, config, told = folder / "home", folder / "hourmark.toml", folder / "expectations.json"
    up, ls, cat, judge, down = inspection_commands(home, config, told, "2026-11-21T05:07")
    assert _as_pasted(up, folder) == f"[{home}][up]"
    assert _as_pasted(ls, folder) == f"[][bucket][ls][--config][{config}]"
    assert (
        _as_pasted(cat, folder)
        == f"[][bucket][cat][track-played][2026-11-21T05:07][--limit][3][--config][{config}]"
    )
    assert _as_pasted(judge, folder) == f"[][judge][check][{told}]"
    assert _as_pasted(down, folder) == f"[{home}][down]"


def test_the_last_words_of_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOURMARK_CALLED", "./hourmark")
    config = folder / "hourmark.toml"
    row = {
        "type": "app",
        "hour": "2026-11-21T05:07",
        "grade": "proved",
        "events": 1,
        "state": "closed",
    }
    bucket, letters, look, cat, query, ls, down = describe_outcome(
        RunOutcome(9.0, {"dead_letter_reasons": {}}, [row], config)
    )
    assert (bucket, letters, look) == (
        "app 2026-11-21T05:07: proved, 1 event",
        "no line of this run became a dead letter",
        "after 9 s every line is in one of these buckets or is a dead letter; to see the content:",
    )
    assert (
        _as_pasted(cat, folder)
        == f"[][bucket][cat][app][2026-11-21T05:07][--limit][3][--config][{config}]"
    )
    assert (
        _as_pasted(query.split(">")[0], folder)
        == f"[][bucket][cat][app][2026-11-21T05:07][--json][--config][{config}]"
    )
    assert query.endswith(" > hour.jsonl  # for jq, pandas or Spark")
    assert _as_pasted(ls, folder) == f"[][bucket][ls][--config][{config}]"
    assert _as_pasted(down.split("#")[0], folder) == "[][down]"


def test_the_last_words_of_a_run_show_an_event_before_a_dead_letter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOURMARK_CALLED", "./hourmark")
    config = folder / "hourmark.toml"
    letters, own = (
        {
            "type": name,
            "hour": "2026-11-21T05:07",
            "grade": "proved",
            "events": 1,
            "state": "closed",
        }
        for name in ("dead-letters", "search")
    )
    *_, cat, _query, show, _ls, _down = describe_outcome(
        RunOutcome(9.0, {"dead_letter_reasons": {}}, [letters, own], config)
    )
    assert (
        _as_pasted(cat, folder)
        == f"[][bucket][cat][search][2026-11-21T05:07][--limit][3][--config][{config}]"
    )
    assert _as_pasted(show, folder) == f"[][dead-letters][show][--config][{config}]"


@pytest.mark.slow
def test_a_step_of_the_demo_that_fails_is_named_as_it_can_be_repeated(folder: Path) -> None:
    config = folder / "hourmark.toml"
    config.write_text("wrong = 1\n")
    with pytest.raises(UsageError, match=r"^hourmark types apply --config ") as failed:
        Components(folder, config, folder, FakeClock()).run("types", "apply", seconds=60)
    (command,) = re.findall("^hourmark (.*) failed:$", str(failed.value), re.MULTILINE)
    assert _as_pasted(f"./hourmark {command}", folder) == f"[][types][apply][--config][{config}]"


def test_a_step_of_the_set_up_that_fails_can_be_repeated(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = folder / "made"
    with pytest.raises(SystemExit):
        _run(["/bin/sh", "-c", 'mkdir "$0"; exit 1', str(made)], folder)
    (command,) = re.findall("stopped at `(.*)`, see the output above", capfd.readouterr().err)
    made.rmdir()
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 1
    assert made.is_dir()
