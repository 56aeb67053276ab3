"""What the doctor says of ledger, schema registry and storage: each fault planted is found, and
what is well is not.
"""

from __future__ import annotations

import dataclasses
import json
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from tests.support import postgres as servers
from tests.support.http_server import Answering, serving
from tests.support.ports import free_port
from tests.support.postgres import Postgres
from tests.support.rules_servers import MemoryRegistry

from hourmark.config.groups import EtlSettings, StorageSettings
from hourmark.config.loading import Config
from hourmark.rules.event_types import DEAD_LETTERS
from hourmark.rules.revision import KnownSchema
from hourmark_declare.doctor import clocks_check, ledger_check, services_check, storage_check
from hourmark_declare.doctor.check_result import CheckStatus, DoctorCheckResult
from hourmark_declare.doctor.ledger_evaluation import (
    RIGHTS,
    SETTINGS,
    VERSION,
    evaluate_postgresql,
    evaluate_privileges,
)
from hourmark_declare.doctor.registry_check import evaluate_schemas
from hourmark_declare.doctor.storage_evaluation import evaluate_namenode
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.engines import open_engine

ON = dict.fromkeys(SETTINGS, "on") | {VERSION: "150004"}
NAMENODE = {
    "Safemode": "",
    "LiveNodes": json.dumps({"one": {}, "two": {}, "three": {}}),
    "NumberOfMissingBlocks": 0,
}
LETTERS = KnownSchema.from_schema(DEAD_LETTERS.name, DEAD_LETTERS.schema())
OTHER = {"type": "record", "name": "other", "fields": []}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with servers.running_or_skipped() as server:
        yield server


def findings(answers: Iterable[DoctorCheckResult]) -> list[str]:
    found = [answer for answer in answers if answer.verdict is CheckStatus.FINDING]
    assert all(answer.to_do for answer in found)
    return [answer.seen for answer in found]


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_postgresql_that_loses_or_damages_commits_is_found(setting: str) -> None:
    (found,) = findings(evaluate_postgresql({**ON, setting: "off"}))
    assert found.startswith(f"{setting} = off: ")


def test_a_postgresql_that_keeps_what_it_commits_is_well() -> None:
    assert findings(evaluate_postgresql(ON)) == []
    assert findings(evaluate_postgresql({**ON, "synchronous_commit": "remote_apply"})) == []


def test_a_postgresql_that_is_too_old_is_found() -> None:
    assert findings(evaluate_postgresql({**ON, VERSION: "90624"})) == ["version 9, needed is 10"]


@pytest.mark.parametrize("question", RIGHTS)
def test_a_right_that_the_ledger_needs_and_has_not_is_found(question: str) -> None:
    (found,) = findings(evaluate_privileges({**dict.fromkeys(RIGHTS, True), question: False}))
    assert found.startswith("this user may make no ")
    assert findings(evaluate_privileges(dict.fromkeys(RIGHTS, True))) == []


def asked_of_ledger(tmp_path: Path) -> list[DoctorCheckResult]:
    etl, storage = (
        EtlSettings(ledger=f"sqlite:///{tmp_path}/ledger.sqlite"),
        StorageSettings(root=f"file://{tmp_path}/root"),
    )
    return list(ledger_check.check_ledger(Config(etl=etl, storage=storage)))


def test_a_database_without_a_ledger_is_found_and_stays_without(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").touch()
    for _ in range(2):
        assert findings(asked_of_ledger(tmp_path)) == ["the database holds no ledger"]
    engine = create_engine(f"sqlite:///{tmp_path}/ledger.sqlite")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar() == 0
    engine.dispose()


def test_a_damaged_ledger_is_found(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"no database" * 1000)
    (found,) = findings(asked_of_ledger(tmp_path))
    assert found == "it cannot be read: file is not a database"


def test_a_ledger_that_answers_is_well(tmp_path: Path) -> None:
    with closing(Database(f"sqlite:///{tmp_path}/ledger.sqlite")) as ledger:
        identity, commit = ledger.identity()
    (answer,) = asked_of_ledger(tmp_path)
    assert (answer.verdict, answer.seen) == (
        CheckStatus.PASSED,
        f"ledger {identity}, commit {commit}",
    )


@pytest.mark.slow
def test_a_real_postgresql_is_asked_for_version_and_rights(postgres: Postgres) -> None:
    url = postgres.new_database()
    Database(url).close()
    config = Config(
        etl=EtlSettings(ledger=url.replace("//hourmark@", "//nobody_much@")),
        storage=StorageSettings(root="file:///nonexistent"),
    )
    engine, _ = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE ROLE nobody_much LOGIN"))
        connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO nobody_much"))
    engine.dispose()
    found = findings(ledger_check.check_ledger(config))
    assert [said.partition(":")[0] for said in found if said.startswith("this user")] == [
        "this user may make no tables",
        "this user may make no schema, in which the ledger is copied before it is migrated",
    ]
    assert not any(said.startswith("version") for said in found)
    *_, of_clock = clocks_check.check_clocks(config)
    assert (of_clock.subject, of_clock.verdict) == ("PostgreSQL", CheckStatus.PASSED)


def registry_of(*schemas: Any, topic: str = LETTERS.topic) -> MemoryRegistry:
    registry = MemoryRegistry()
    for schema in schemas:
        registry.register(topic, schema)
    return registry


@pytest.mark.parametrize(
    ("registry", "said"),
    [
        (registry_of(), "it is not registered under subject events.dead-letters-value"),
        (
            registry_of(LETTERS.schema, topic="events.other"),
            "it is not registered under subject events.dead-letters-value",
        ),
        (registry_of(OTHER), "it belongs to another schema, other"),
    ],
)
def test_a_schema_that_the_registry_lost_or_changed_is_found(
    registry: MemoryRegistry, said: str
) -> None:
    assert findings(evaluate_schemas(registry, {1: LETTERS})) == [said]


def test_a_registry_that_has_what_the_ledger_knows_is_well() -> None:
    (answer,) = evaluate_schemas(registry_of(LETTERS.schema), {1: LETTERS})
    assert answer.verdict is CheckStatus.PASSED


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"Safemode": "Safe mode is ON."}, "it is in safe mode: nothing can be written"),
        (
            {"LiveNodes": '{"one": {}}'},
            "1 datanodes live, and files are to have 3 replicas (storage.replication)",
        ),
        ({"NumberOfMissingBlocks": 7}, "7 blocks have no replica left"),
        ({"PercentRemaining": 4.9}, "4.9 % of its datanodes' disks are free, at least 5 should be"),
    ],
)
def test_a_namenode_that_cannot_keep_files_is_found(changed: dict[str, Any], said: str) -> None:
    assert findings(evaluate_namenode({**NAMENODE, **changed}, 3)) == [said]


def test_a_namenode_that_can_is_well() -> None:
    assert findings(evaluate_namenode(NAMENODE, 3)) == []


class NameNode(Answering):
    """In safe mode, with nothing in it."""

    def do_GET(self) -> None:
        if self.path.startswith("/jmx"):
            self.answer(
                200, json.dumps({"beans": [{**NAMENODE, "Safemode": "Safe mode is ON."}]}).encode()
            )
        else:
            self.answer(200, json.dumps({"FileStatuses": {"FileStatus": []}}).encode())

    def do_PUT(self) -> None:
        told = {
            "exception": "SafeModeException",
            "javaClassName": "",
            "message": "Name node is in safe mode.",
        }
        self.answer(403, json.dumps({"RemoteException": told}).encode())

    do_DELETE = do_PUT


class Gateway(NameNode):
    """Without /jmx."""

    def do_GET(self) -> None:
        if self.path.startswith("/jmx"):
            self.answer(404, b"<html>")
        else:
            super().do_GET()


@pytest.mark.parametrize(
    ("server", "said", "last"),
    [
        (NameNode, ["it is in safe mode"], CheckStatus.FINDING),
        (
            Gateway,
            ["nothing can be written", "the test folder cannot be deleted"],
            CheckStatus.SKIPPED,
        ),
    ],
)
def test_safe_mode_is_one_finding_where_the_namenode_can_be_asked(
    server: type[Answering], said: list[str], last: CheckStatus
) -> None:
    with serving(server) as address:
        storage = StorageSettings(root="hdfs://namenode:8020/hourmark", webhdfs=f"http://{address}")
        answers = list(storage_check.check_storage(Config(storage=storage)))
    assert answers[0].verdict is CheckStatus.PASSED
    assert [found.partition(":")[0] for found in findings(iter(answers))] == said
    assert next(answer.verdict for answer in answers if answer.subject == "NameNode") is last


def test_a_second_namenode_that_is_away_cannot_take_over() -> None:
    away = f"http://127.0.0.1:{free_port()}"
    with serving(NameNode) as address:
        storage = StorageSettings(root="hdfs://events/hourmark", webhdfs=f"{away},http://{address}")
        found = findings(storage_check.check_storage(Config(storage=storage)))
    assert found[0].startswith(f"{away} does not respond")
    assert found[0].endswith(f"it cannot take over if http://{address} fails")
    assert found[1].startswith("it is in safe mode")


def test_a_namenode_that_is_away_is_one_finding_and_no_gateway() -> None:
    storage = StorageSettings(
        root="hdfs://namenode:8020/hourmark", webhdfs=f"http://127.0.0.1:{free_port()}"
    )
    (answer,) = storage_check.check_storage(Config(storage=storage))
    assert answer.verdict is CheckStatus.FINDING
    assert answer.seen.startswith("no response from 127.0.0.1:")


def test_a_root_where_nothing_was_written_yet_is_well(tmp_path: Path) -> None:
    (answer,) = storage_check.check_storage(
        Config(storage=StorageSettings(root=f"file://{tmp_path}/none"))
    )
    assert answer.verdict is CheckStatus.PASSED


@pytest.mark.parametrize("ask", [services_check.check_services, clocks_check.check_clocks])
@pytest.mark.parametrize("url", ["http://me:geheim@127.0.0.1:1", "http://me:geheim@127.0.0.1"])
def test_a_password_in_a_service_url_is_not_shown(
    ask: Callable[[Config], Iterator[DoctorCheckResult]], url: str, tmp_path: Path
) -> None:
    source = {"name": "app", "paths": [f"{tmp_path}/*.log"]}
    config = Config.model_validate(
        {"tailer": {"sources": [source], "service_urls": [url]}, "registry": {"url": url}}
    )
    answers = list(ask(config))
    assert answers and "geheim" not in json.dumps(
        [dataclasses.asdict(answer) for answer in answers]
    )


def test_a_server_that_speaks_no_http_is_told_of_and_the_next_is_asked(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def greet() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1024)
                client.sendall(b"SSH-2.0-OpenSSH\r\n")

        pool.submit(greet)
        urls = [f"http://127.0.0.1:{server.getsockname()[1]}", "http://127.0.0.1:1"]
        config = Config.model_validate(
            {
                "tailer": {
                    "sources": [{"name": "app", "paths": [f"{tmp_path}/*.log"]}],
                    "service_urls": urls,
                }
            }
        )
        assert [answer.verdict for answer in services_check.check_services(config)] == [
            CheckStatus.FINDING,
            CheckStatus.SKIPPED,
        ]
