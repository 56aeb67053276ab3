"""Pages of docs/operate: every message and stage exists.

Whether commands parse: tests/unit/docs/test_commands.py. Metrics: tests/unit/docs/test_metrics_page.py.
"""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator

import pytest
from tests.support.documents import ROOT
from tools import verify_bucket

from hourmark_etl.model import ClosingPhase

OPERATE = ROOT / "docs" / "operate"
CODE = re.compile(r"`([^`]+)`")


@functools.cache
def said() -> str:
    """All of them."""
    return " ".join(literals())


def literals() -> Iterator[str]:
    """Every text that the sources hold, those of f-strings with `…` for what they fill in."""
    for file in ROOT.glob("*/hourmark*/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    part.value if isinstance(part, ast.Constant) else "…"  # type: ignore[misc]
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"%\.?\d*[sdf]", "…", node.value)


def messages() -> list[str]:
    """The first column of each table of messages."""
    found: list[str] = []
    for page in sorted(OPERATE.glob("*.md")):
        in_table = False
        for line in page.read_text().splitlines():
            in_table = line.startswith("|") and (in_table or line.startswith("| message |"))
            if in_table and not line.startswith(("| message |", "|---")):
                found += CODE.findall(line.split(" | ")[0])
    return found


def test_tables_of_messages_are_found() -> None:
    assert len(messages()) > 70


@pytest.mark.slow
@pytest.mark.parametrize("message", messages())
def test_a_message_of_the_documentation_is_one_that_is_said(message: str) -> None:
    fragments = [part.strip() for part in message.split("…") if part.strip()]
    assert fragments and all(fragment in said() for fragment in fragments), message


def test_every_stage_of_the_books_is_explained() -> None:
    from hourmark_etl.operators.reconciliation import ReconciliationStage

    monitor = (OPERATE / "monitor.md").read_text()
    for stage in ReconciliationStage:
        assert f"| `{stage.value}` |" in monitor


def test_the_checker_for_others_takes_what_the_documentation_gives_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (OPERATE / "list-buckets.md").read_text()
    (line,) = re.findall(r"^python verify_bucket\.py (.*)$", page, re.MULTILINE)
    folder, *options = shlex.split(line)
    with pytest.raises(SystemExit) as ended:
        verify_bucket.main([folder, *options])
    assert ended.value.code == 2 and f"{folder} is not a folder" in capsys.readouterr().err


def test_every_phase_has_its_exit_in_the_table() -> None:
    rows = [
        line
        for line in (ROOT / "docs" / "internals" / "closing.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    named = {phase for row in rows for phase in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {phase.value for phase in ClosingPhase}
    assert all(len(row.split("|")) == 6 and row.split("|")[4].strip() for row in rows)
