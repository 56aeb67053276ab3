"""docs/how-to: commands of the guides about types, tokens and sizes print what is shown."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.bucket_world import World
from tests.support.clock import FakeClock
from tests.support.documents import code_blocks
from tests.support.guides import FOLDER, ShownFile, commands, steps
from tests.support.rules_servers import MemoryRegistry, MemoryTopic, outside
from tests.support.runbooks import Command

from hourmark.cli import root
from hourmark.config.groups import KafkaSettings
from hourmark.config.loading import Config
from hourmark.errors import HourmarkError
from hourmark.rules.event_types import EventType
from hourmark.rules.revision import Rules
from hourmark.rules.topics import edge_topics
from hourmark_declare.apply import ApplyTargets
from hourmark_delivery_service.access.token import Token
from hourmark_etl.ledger.rules import LedgerRules
from hourmark_etl.operators.tracing.summary import TraceVerdict
from hourmark_producer.receive.inputs import check_inputs
from hourmark_producer.report.trace import TraceStage

GUIDES = (
    "add-a-type",
    "change-a-type",
    "rename-a-type",
    "retire-a-type",
    "multi-line-records",
    "container-logs",
    "receive-syslog-and-journal",
    "tokens-and-tls",
    "second-site",
    "trigger-a-scheduler",
    "find-a-line",
    "resend-after-loss",
    "restore-a-ledger",
    "test-with-a-local-stack",
    "migrate-from-filebeat",
    "migrate-from-fluent-bit",
    "migrate-from-vector",
    "migrate-from-rsyslog",
    "migrate-from-flume",
    "migrate-from-kafka-connect",
    "size-a-site",
    "spark-standalone",
    "yarn",
    "production-hdfs",
    "s3",
    "kubernetes",
)
TEXTS = {name: (FOLDER / f"{name}.md").read_text() for name in GUIDES}
EXECUTED = (
    "types check", "types try", "types apply", "types list",
    "token create", "token list", "token revoke", "size ",
)  # fmt: skip
TOKEN_ID = "3f2a90c1b7d4e856"  # what pages show as the id of the first token
NOW_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z
IN_FORCE = ("change-a-type", "rename-a-type", "retire-a-type")  # what such a page declares first


class Site:
    """Kafka, a registry and a ledger in memory, and a folder in which commands are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._topic, self._registry = MemoryTopic(), MemoryRegistry()
        self._ledger = LedgerRules(World(folder / "world").database)
        self._topics: set[str] = set()
        self._tokens: dict[str, Token] = {}
        (folder / "hourmark.toml").write_text("")

    @contextlib.contextmanager
    def open_targets(self, config: Config, report: Callable[[str], None]) -> Iterator[ApplyTargets]:
        def create_topics(types: Sequence[EventType]) -> list[str]:
            wanted = [topic.name for topic in edge_topics(config.kafka, types)]
            created = [name for name in wanted if name not in self._topics]
            self._topics.update(created)
            return created

        yield dataclasses.replace(
            outside(self._ledger, self._registry, self._topic),
            create_topics=create_topics,
            report=report,
        )

    def read_applied_rules(self, config: Config) -> Rules | None:
        return self._topic.read().latest

    def read_tokens(self, kafka: KafkaSettings) -> dict[str, Token]:
        return self._tokens

    def write_token(self, kafka: KafkaSettings, token: Token) -> None:
        self._tokens[token.id] = token

    def run(self, line: str) -> str:
        printed = self._run(line.replace(TOKEN_ID, next(iter(self._tokens), "")))
        return printed.replace(next(iter(self._tokens), TOKEN_ID), TOKEN_ID)

    def _run(self, line: str) -> str:
        program, *words = shlex.split(line.partition(" > ")[0])
        assert program == "hourmark"
        done = CliRunner().invoke(root, words)
        if done.exception is None or isinstance(done.exception, SystemExit):
            return done.output
        if not isinstance(done.exception, HourmarkError):
            raise done.exception
        return f"{done.output}\nhourmark: {done.exception}"  # as `main` prints it


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOURMARK_CONFIG", raising=False)
    for module in ("cli", "try_cli"):
        monkeypatch.setattr(f"hourmark_declare.{module}.SystemClock", lambda: FakeClock(NOW_MS))
    for name in ("read_tokens", "write_token"):
        monkeypatch.setattr(f"hourmark_delivery_service.access.topic.{name}", getattr(site, name))
    monkeypatch.setattr("hourmark_declare.servers.open_targets", site.open_targets)
    monkeypatch.setattr("hourmark_declare.servers.read_applied_rules", site.read_applied_rules)
    return site


def is_executed(command: Command) -> bool:
    words = command.line.removeprefix("hourmark ")
    return bool(command.output) and words.startswith(EXECUTED)


@pytest.mark.parametrize(
    "name", [name for name, text in TEXTS.items() if any(map(is_executed, commands(text)))]
)
def test_a_guide_prints_what_it_shows(name: str, site: Site) -> None:
    applied = name not in IN_FORCE
    for step in steps(TEXTS[name]):
        if isinstance(step, ShownFile):
            file = site.folder / step.name
            file.parent.mkdir(exist_ok=True)
            file.write_text(step.text)
            continue
        if not applied:
            assert "is in force" in site.run("hourmark types apply")
            applied = True
        if is_executed(step):
            printed = site.run(step.line)
            assert step.missing(printed) == [], printed
        elif match := re.fullmatch(r"git rm (\S+)", step.line):
            (site.folder / match[1]).unlink()


@pytest.mark.parametrize("name", GUIDES)
def test_a_block_of_settings_is_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in re.findall(r"\$\{env:(\w+)\}", TEXTS[name]):
        monkeypatch.setenv(variable, "value")
    for block in code_blocks(TEXTS[name], "toml"):
        read = tomllib.loads(block)
        if read.keys() <= Config.model_fields.keys():
            config = Config.model_validate(read)
            check_inputs(config.tailer)


def test_every_stage_and_verdict_of_a_trace_is_explained() -> None:
    rows = {row.split("`")[1] for row in TEXTS["find-a-line"].splitlines() if row[:3] == "| `"}
    assert rows >= {stage.value for stage in TraceStage} | {v.value for v in TraceVerdict}


@pytest.mark.parametrize("name", GUIDES)
def test_a_block_of_python_is_valid(name: str) -> None:
    for block in code_blocks(TEXTS[name], "python"):
        ast.parse(block)
