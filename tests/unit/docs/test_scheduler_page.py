"""docs/how-to/trigger-a-scheduler.md: its script and its task react to the exit codes of
`bucket wait`, and its marker is one.
"""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import jinja2
import pytest
from tests.support.closed_hours import closed_manifest
from tests.support.documents import code_blocks, resolved
from tests.support.guides import FOLDER

from hourmark.records.hours import Hour
from hourmark.records.manifest import MARKER, Grade
from hourmark_etl.operators.buckets.exits import BucketExit

PAGE = (FOLDER / "trigger-a-scheduler.md").read_text()
HOUR = Hour.parse("2026-11-21T05")


def block(language: str) -> str:
    (body,) = code_blocks(PAGE, language)
    return body


@pytest.mark.parametrize("code", [2, *BucketExit])
def test_the_script_loads_proved_hours_only(code: int, tmp_path: Path) -> None:
    for name, text in (
        ("hourmark", f'echo "$@" > {tmp_path}/asked; exit {code}'),
        ("load_hour", f"echo loaded > {tmp_path}/loaded"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(["sh", "-c", block("sh")], env={"PATH": path}, check=False)
    is_proved = code == BucketExit.PROVED
    assert (done.returncode == 0, (tmp_path / "loaded").exists()) == (is_proved, is_proved)
    command, arguments = resolved(shlex.split((tmp_path / "asked").read_text()))
    with command.make_context(command.name, arguments):
        pass


def test_the_task_waits_for_the_hour_of_its_run() -> None:
    tree = ast.parse(block("python"))
    (hour,) = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    ]
    (sensor,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "BashSensor"
    ]
    given = {word.arg: word.value for word in sensor.keywords}
    line = eval(ast.unparse(given["bash_command"]), {"HOUR": hour})  # the page's own
    start = datetime.fromtimestamp(HOUR.start_s, UTC)
    program, *words = shlex.split(jinja2.Template(line).render(data_interval_start=start))
    command, arguments = resolved(words)
    with command.make_context(command.name, arguments) as context:
        assert (program, context.params["hour"]) == ("hourmark", str(HOUR))
    assert ast.literal_eval(given["retry_exit_code"]) == BucketExit.OPEN


def test_every_exit_code_is_in_the_table() -> None:
    for code in (2, *BucketExit):
        assert f"\n| {code:d} | " in PAGE


def test_the_marker_has_the_path_and_the_grade_of_the_page() -> None:
    assert f"/{HOUR.bucket_path('end-song')}/{MARKER} | jq -r .grade" in PAGE
    for grade in Grade:
        manifest = closed_manifest("end-song", HOUR, grade)
        assert json.loads(manifest.encode())["grade"] == grade.value
