"""What `hourmark status` shows of the storage: a folder, and what a NameNode reports of itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.closed_hours import add_type, write_config
from tests.support.object_clients import memory_objects
from tests.support.simulator.objects import DictionaryClient

from hourmark.commands.server_status import ServerStatus
from hourmark.config.loading import load_config
from hourmark.errors import UsageError
from hourmark.records.manifest import Grade
from hourmark_etl.ledger.database import Database
from hourmark_etl.storage import AccessDenied, ObjectStorage, Storage
from hourmark_etl.storage.namenode import NameNodeReport
from hourmark_etl.storage.object_client import ObjectListing
from hourmark_etl.telemetry import storage_server
from hourmark_etl.telemetry.storage_server import (
    FREE_MIB_MIN,
    evaluate_namenode_info,
    evaluate_namenodes,
)


def ask(folder: Path) -> ServerStatus:
    config = load_config(write_config(folder, f"sqlite:///{folder}/ledger.sqlite"))
    (found,) = storage_server.storage_server(config)
    return found


def test_a_folder_that_nobody_has_written_to_is_well(tmp_path: Path) -> None:
    assert (ask(tmp_path).healthy, ask(tmp_path).detail) == (True, "not written yet")
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        add_type(database, "click")
    assert ask(tmp_path).healthy, "nothing is closed"


def test_a_root_without_the_buckets_that_the_ledger_has_closed_is_not_mounted(
    tmp_path: Path,
) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        add_type(database, "click", [Grade.PROVED])
    assert ask(tmp_path).detail.startswith("the folder does not exist, but according to the ledger")
    (tmp_path / "root").mkdir()
    found = ask(tmp_path)
    assert "is empty, but according to the ledger it contains closed buckets" in found.detail
    assert not found.healthy and "mount it, or correct storage.root" in found.do
    (tmp_path / "root" / "click").mkdir()
    assert ask(tmp_path).healthy


def test_a_full_disk_is_named_before_what_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root" / "click").mkdir(parents=True)
    usage = shutil.disk_usage(tmp_path)._replace(free=(FREE_MIB_MIN << 20) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    found = ask(tmp_path)
    assert not found.healthy and found.detail.startswith(f"{FREE_MIB_MIN - 1} MiB are free")
    assert "disk-full.md" in found.do


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({}, "1 live DataNodes"),
        ({"Safemode": "Safe mode is ON"}, "in safe mode"),
        ({"NumberOfMissingBlocks": 3}, "3 blocks have no replica left"),
        ({"PercentRemaining": 0.4}, "0.4 % of the DataNodes' disks are free"),
        ({"LiveNodes": "{}"}, "no live DataNode"),
    ],
)
def test_a_namenode_names_what_keeps_files_from_being_written(
    info: dict[str, Any], said: str
) -> None:
    usual = {"LiveNodes": json.dumps({"dn-1": {}}), "PercentRemaining": 40.0}
    found = evaluate_namenode_info("http://nn:9870", usual | info)
    assert said in found.detail and found.healthy is (info == {})
    assert found.healthy or found.do


INFO = {"LiveNodes": json.dumps({"dn-1": {}})}
ACTIVE = NameNodeReport(address="http://nn1", state="active", info=INFO)
STANDBY = NameNodeReport(address="http://nn2", state="standby", info={**INFO, "Safemode": "on"})
OBSERVER = NameNodeReport(address="http://nn3", state="observer", info=INFO)
AWAY = NameNodeReport(address="http://nn4", failure="refused")


@pytest.mark.parametrize("reports", [[ACTIVE], [ACTIVE, STANDBY], [STANDBY, ACTIVE]])
def test_of_a_name_service_the_active_namenode_counts(reports: list[NameNodeReport]) -> None:
    (found,) = evaluate_namenodes(reports)
    assert (found.address, found.healthy) == ("http://nn1", True)


@pytest.mark.parametrize(
    ("reports", "unhealthy", "step"),
    [
        ([AWAY], "http://nn4 does not respond: refused", "nothing is staged"),
        ([ACTIVE, AWAY], "http://nn4 does not respond: refused", "no NameNode can take over"),
        ([STANDBY], "http://nn2 is standby, and no NameNode of storage.webhdfs", "haadmin"),
        ([OBSERVER, ACTIVE], "http://nn3 is an observer", "remove its address"),
    ],
)
def test_a_namenode_that_cannot_serve_or_take_over_is_unhealthy(
    reports: list[NameNodeReport], unhealthy: str, step: str
) -> None:
    found = evaluate_namenodes(reports)
    (problem,) = [status for status in found if not status.healthy]
    assert f"{problem.address} {problem.detail}".startswith(unhealthy) and step in problem.do
    assert len(found) == len(reports)


def test_a_gateway_that_does_not_report_its_state_serves() -> None:
    gateway = NameNodeReport(address="http://httpfs:14000")
    (found,) = evaluate_namenodes([gateway])
    assert (found.healthy, found.detail) == (True, "answers")


def ask_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[], Storage]
) -> ServerStatus:
    file = write_config(folder, f"sqlite:///{folder}/ledger.sqlite")
    config = load_config(file)
    on_s3 = config.model_copy(
        update={"storage": config.storage.model_copy(update={"root": "s3://bucket/root"})}
    )
    monkeypatch.setattr(storage_server, "open_storage", lambda *_, **__: opened())
    (found,) = storage_server.storage_server(on_s3)
    assert (found.name, found.address) == ("storage", "s3://bucket/root")
    return found


def test_an_object_store_that_answers_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = memory_objects()
    found = ask_store(tmp_path, monkeypatch, lambda: storage)
    assert (found.healthy, found.detail) == (True, "not written yet")
    storage.write_new("click/file", b"")
    found = ask_store(tmp_path, monkeypatch, lambda: storage)
    assert (found.healthy, found.detail) == (True, "answers")


def test_an_object_store_without_the_buckets_of_the_ledger_is_not_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database(f"sqlite:///{tmp_path}/ledger.sqlite") as database:
        add_type(database, "click", [Grade.PROVED])
    found = ask_store(tmp_path, monkeypatch, memory_objects)
    assert not found.healthy and "it contains closed buckets" in found.detail


def test_an_object_store_that_does_not_answer_is_not_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(DictionaryClient):
        def list_level(self, prefix: str) -> ObjectListing:
            raise AccessDenied(prefix, self.url(prefix), "no credentials")

    found = ask_store(tmp_path, monkeypatch, lambda: ObjectStorage(Away()))
    assert (found.healthy, found.detail) == (False, "no credentials") and found.do


def test_a_client_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Storage:
        raise UsageError("obstore is not installed")

    found = ask_store(tmp_path, monkeypatch, missing)
    assert not found.healthy and "obstore" in found.detail
