"""The example programs in examples/posting, as a user runs them, and what they left in a queue."""

from __future__ import annotations

import dataclasses
import functools
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest
from tests.support.memory_queue import MemoryQueue
from tests.support.service.examples import TYPES

from hourmark.avro.framing import unframe

FOLDER: Final = Path(__file__).parents[2] / "examples" / "posting"
_PROXY_VARIABLES: Final = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}


def _python(_: Path) -> list[str]:
    return [sys.executable, str(FOLDER / "post_events.py")]


def _java(build: Path) -> list[str]:
    _run_tool("javac", "-d", str(build), str(FOLDER / "PostEvents.java"))
    return ["java", "-cp", str(build), "PostEvents"]


def _go(build: Path) -> list[str]:
    _run_tool("go", "build", "-o", str(build / "post_events"), str(FOLDER / "post_events.go"))
    return [str(build / "post_events")]


def _javascript(_: Path) -> list[str]:
    return ["node", str(FOLDER / "post_events.mjs")]


@dataclasses.dataclass(frozen=True)
class Language:
    """A language of the examples: the tools that it needs, and how its example is built.

    `build` returns the command of the program, and may compile it into the folder that it gets.
    """

    tools: tuple[str, ...]
    build: Callable[[Path], list[str]]

    def missing(self) -> str:
        """The first tool that is not on PATH, or an empty string."""
        return next((tool for tool in self.tools if shutil.which(tool) is None), "")


LANGUAGES: Final = {
    "python": Language((), _python),
    "java": Language(("java", "javac", "keytool"), _java),
    "go": Language(("go",), _go),
    "javascript": Language(("node",), _javascript),
}


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without proxies, which the examples would otherwise use."""
    kept = {k: v for k, v in os.environ.items() if k.lower() not in _PROXY_VARIABLES}
    return {**kept, **variables}


@dataclasses.dataclass(frozen=True)
class Program:
    """An example that can be run."""

    language: str
    command: list[str]

    def post(
        self,
        events: bytes,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run it with these events on its standard input."""
        ended = subprocess.run(
            [*self.command, *arguments],
            input=events,
            capture_output=True,
            timeout=timeout_s,
            env=environment(**(variables or {})),
            check=False,
        )
        return subprocess.CompletedProcess(
            ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode()
        )


def build(language: str, folder: Path) -> Program:
    """Build the example of a language, or skip the test if the machine lacks a tool for it."""
    if tool := LANGUAGES[language].missing():
        pytest.skip(f"the example in {language} needs {tool}, which is not on PATH")
    folder.mkdir(exist_ok=True)
    return Program(language, LANGUAGES[language].build(folder))


def numbers_by_id(queue: MemoryQueue, field: str) -> dict[bytes, int]:
    """The value of an integer field of each click in the queue, by event id.

    A bucket keeps one record for each id, so this is what a bucket would hold.
    """
    found: dict[bytes, int] = {}
    for record in queue.of("events.click"):
        number = _decode(record.value)[field]
        assert found.setdefault(record.key[:16], number) == number, "one id, one event"
    return found


def _decode(value: bytes) -> dict[str, Any]:
    schema_id, datum = unframe(value)
    row: Any = fastavro.schemaless_reader(io.BytesIO(datum), _schema(schema_id), None)
    return dict(row)


@functools.cache
def _schema(schema_id: int) -> Any:
    return fastavro.parse_schema(TYPES[schema_id - 1].schema(), named_schemas={})


def _run_tool(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
