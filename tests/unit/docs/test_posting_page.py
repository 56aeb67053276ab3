"""docs/start/post-events.md: its commands print what it says, against a service with the example types."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.documents import ROOT, console_commands
from tests.support.posting_examples import FOLDER, environment
from tests.support.revisions import encoded
from tests.support.service.harness import Harness
from tests.support.service.threaded import Served, served

from hourmark.clock import SystemClock
from hourmark.config.groups import ParsingSettings
from hourmark.rules.event_types import DEAD_LETTERS, read_declarations
from hourmark.rules.revision import Rules, TypeVersion

PAGE = (ROOT / "docs" / "start" / "post-events.md").read_text()
PREPARATION, *EXAMPLES = console_commands(PAGE)
SLOW = ("java ", "go ")  # compile the source first, Go its standard library, too
SLOW_MARKS = (pytest.mark.slow, pytest.mark.timeout(900))


@pytest.fixture
def service() -> Iterator[Served]:
    with served(clock=SystemClock()) as found:
        apply_example_types(found.harness)
        yield found


def apply_example_types(h: Harness) -> None:
    declared = read_declarations(ROOT / "examples" / "types")
    types = [*declared.types, DEAD_LETTERS]
    versions = {t.name: TypeVersion(t, number) for number, t in enumerate(types, 1)}
    rules = Rules(sequence=2, types=versions, sources={}, parsing=ParsingSettings())
    h.rules.feed(encoded(rules.records()), from_start=True)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(*pair, marks=SLOW_MARKS if pair[0].startswith(SLOW) else ())
        for pair in EXAMPLES
    ],
)
def test_a_command_prints_what_the_page_says(
    service: Served, tmp_path: Path, command: str, output: str
) -> None:
    tool = command.split("| ")[-1].split()[0]
    if tool != "python3" and shutil.which(tool) is None:
        pytest.skip(f"the command needs {tool}, which is not on PATH")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "python3").symlink_to(sys.executable)
    run(PREPARATION[0], tmp_path)
    ended = run(
        command.replace("8780", str(service.port)).replace("python3 ", "./python3 "), tmp_path
    )
    assert ended.stderr + ended.stdout == output
    assert ended.returncode == (", 0 rejected" not in output)
    stored = 0 if "--validate-only" in command else 3
    assert len(service.harness.queue.of("events.page-viewed")) == stored


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment(HOURMARK_RETRY_SECONDS="5"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_each_example_has_a_command() -> None:
    text = " ".join(command for command, _ in EXAMPLES)
    assert [
        file.name for file in FOLDER.iterdir() if f"examples/posting/{file.name} " not in text
    ] == []


def test_the_semantics_are_five_sentences() -> None:
    (section,) = re.findall(r"## Ids and retries\n(.*?)\n## ", PAGE, re.DOTALL)
    assert re.findall(r"^(\d)\. ", section, re.MULTILINE) == list("12345")
