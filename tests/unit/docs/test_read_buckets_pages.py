"""docs/how-to/read-buckets.md and the page without the library: their programs print what is shown.

The programs for Spark and Hive are run by tests/integration/test_read_buckets_on_spark.py.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.support.access_buckets import write_access_buckets
from tests.support.documents import ROOT, code_blocks, fenced_blocks
from tests.support.readable_buckets import ReadableSite
from tests.support.runbooks import parse_commands

LIBRARY = (ROOT / "docs" / "how-to" / "read-buckets.md").read_text()
WITHOUT = (ROOT / "docs" / "how-to" / "read-buckets-without-the-library.md").read_text()
SHOWN_ROOT = "webhdfs://namenode.example.com:9870/hourmark"


@pytest.fixture
def site(tmp_path: Path) -> ReadableSite:
    return write_access_buckets(tmp_path)


def programs(page: str) -> Iterator[tuple[str, str]]:
    """Python programs in their order, each with the output that is shown after it."""
    blocks = [*fenced_blocks(page), ("", "")]
    for (language, code), (following, output) in itertools.pairwise(blocks):
        if language == "python":
            yield code, output if following == "text" else ""


def test_the_programs_with_the_library_print_what_is_shown(site: ReadableSite) -> None:
    scope: dict[str, object] = {}
    shown = [pair for pair in programs(LIBRARY) if "SparkSession" not in pair[0]]
    assert len(shown) == 10
    for code, output in shown:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code.replace(SHOWN_ROOT, site.url), scope)
        assert printed.getvalue() == output, code


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def output_of(program: str) -> str:
    """What the page shows as the output of the command that runs the program."""
    [command] = [
        command
        for block in code_blocks(WITHOUT, "console")
        for command in parse_commands(block)
        if program in command.line
    ]
    assert command.line.endswith(f"{program} access/date=2026-11-30/hour=05")
    return "".join(f"{line}\n" for line in command.output)


def test_the_program_with_fastavro_prints_what_is_shown(site: ReadableSite, tmp_path: Path) -> None:
    [code] = code_blocks(WITHOUT, "python")
    (tmp_path / "read_bucket.py").write_text(code)
    command = [sys.executable, "read_bucket.py", "access/date=2026-11-30/hour=05"]
    assert run(command, tmp_path) == output_of("read_bucket.py")


@pytest.mark.slow
def test_the_program_in_java_prints_what_is_shown(site: ReadableSite, tmp_path: Path) -> None:
    [code] = code_blocks(WITHOUT, "java")
    (tmp_path / "ReadBucket.java").write_text(code)
    [jars] = pyspark.__path__
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    command = [str(java), "-cp", f"{jars}/jars/*", "ReadBucket.java"]
    printed = run([*command, "access/date=2026-11-30/hour=05"], tmp_path)
    assert printed == output_of("ReadBucket.java")


def test_every_jar_that_the_page_names_is_in_a_spark_distribution() -> None:
    [jars] = pyspark.__path__
    names = {path.name for path in Path(jars, "jars").glob("*.jar")}
    [needed] = re.findall(
        r"It needs (.*?) on the class path, and\n(.*?) for buckets", WITHOUT, re.S
    )
    for name in re.findall(r"`(.*?)`", " ".join(needed)):
        assert any(jar.startswith(f"{name}-") for jar in names), name
