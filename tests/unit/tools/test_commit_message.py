"""The check of commit messages, as git runs it, and the hooks that name it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools.commit_message import problems

ROOT = Path(__file__).resolve().parents[3]
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text()
RIGHT = "Say what\n\nBecause of this.\n"


@pytest.mark.parametrize(
    "message",
    [
        RIGHT,
        f"{'x' * 72}\n\nwhy\n",
        "\n\nSay what\n\nwhy\n",  # git strips empty lines before the subject
        f"{RIGHT}# Please enter the commit message. {'x' * 100}\n",
        f"{RIGHT}# ------------------------ >8 ------------------------\ndiff --git a/x b/x\n",
        "Merge branch 'x'\n",
        "fixup! Say what\n",
    ],
)
def test_a_right_message_passes(message: str) -> None:
    assert list(problems(message)) == []


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (f"{'x' * 73}\n\nwhy\n", ["the subject has 73 characters"]),
        ("Say what\n", ["the body is missing"]),
        ("Say what\n\n# why\n", ["the body is missing"]),
        ("Say what\nand why\n", ["the second line is not empty", "the body is missing"]),
        (
            "Say what\n\n# ------------------------ >8 ------------------------\n+why\n",
            ["the body is missing"],
        ),
        ("# nothing\n", ["the subject is missing", "the body is missing"]),
    ],
)
def test_a_wrong_message_is_told_what_is_wrong(message: str, said: list[str]) -> None:
    found = list(problems(message))
    assert [problem.startswith(start) for problem, start in zip(found, said, strict=True)] == [
        True
    ] * len(said), found


def test_git_refuses_a_wrong_message_and_takes_a_right_one(tmp_path: Path) -> None:
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert git("init", "--quiet").returncode == 0
    hook = tmp_path / ".git" / "hooks" / "commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tools/commit_message.py" "$1"\n')
    hook.chmod(0o755)
    refused = git("commit", "--allow-empty", "-m", "Say what")
    assert (
        refused.returncode == 1
        and "the body is missing: after an empty line, state the reason" in refused.stderr
    )
    assert git("commit", "--allow-empty", "-m", "Say what", "-m", "Because").returncode == 0


def test_hooks_are_local_and_what_they_run_is_there() -> None:
    assert re.findall(r"repo: (.*)", HOOKS) == ["local"]
    entries = re.findall(r"entry: (.*)", HOOKS)
    assert len(entries) == 3
    for entry in entries:
        program, *arguments = entry.split()
        assert (Path(sys.executable).parent / Path(program).name).exists() and program.startswith(
            ".venv/bin/"
        )
        assert all((ROOT / argument).is_file() for argument in arguments if "/" in argument)
