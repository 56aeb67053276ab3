"""Failovers of a real HDFS name service: writers and the ETL go on without a restart, and lose
nothing.

The name service is the module's own, see tests/support/ha_hdfs.py. Every class of response is tested
in tests/unit/etl/storage/test_storage_failover.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import hdfs
import pytest
import requests
from tests.faults.outcome import LONG, assert_whole
from tests.support.etl_scene import Scene, scene_on
from tests.support.ha_hdfs import HaHdfs
from tests.support.publisher import Publisher
from tests.support.waiting import wait_for

from hourmark.config.groups import StorageSettings
from hourmark_etl.storage import (
    AccessDenied,
    FolderStorage,
    QuotaExceeded,
    open_storage,
)
from hourmark_etl.storage.namenode import find_serving, read_namenode
from hourmark_infra.stack import LocalStack

pytestmark = LONG
CONTENT = b"x" * 2000  # more than the quota of space


@pytest.fixture(scope="module")
def driver(
    name_service: HaHdfs, stack: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """The ETL on the stack's Kafka and the name service; an hour was closed."""
    with scene_on(name_service.settings, stack, tmp_path_factory.mktemp("driver")) as made:
        yield made


def open_hdfs(settings: StorageSettings) -> FolderStorage:
    return cast(FolderStorage, open_storage(settings))


def test_folders_are_published_once_through_failovers_and_the_death_of_a_namenode(
    name_service: HaHdfs,
) -> None:
    storage = open_hdfs(name_service.settings)
    ended = threading.Event()
    publishers = [Publisher(storage, f"type-{number}") for number in range(3)]

    def go_on() -> None:
        """Wait until each has published more."""
        before = [len(p.published) for p in publishers]
        wait_for(
            lambda: all(len(p.published) > n + 2 for p, n in zip(publishers, before, strict=True)),
            "publishing goes on",
            120,
        )

    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(publisher.run, ended) for publisher in publishers]
        try:
            go_on()
            name_service.fail_over("nn1", "nn2")
            go_on()
            name_service.kill("nn2")
            name_service.activate("nn1")
            go_on()
        finally:
            ended.set()
        for run in runs:
            run.result()
    name_service.start("nn2")
    for publisher in publishers:
        publisher.check()
    assert {entry.name for entry in storage.list("")} >= {f"type-{n}" for n in range(3)}


def test_the_state_of_each_namenode_is_reported(name_service: HaHdfs) -> None:
    wait_for(lambda: name_service.state("nn2") == "standby", "nn2 is back", 300, 0.5)
    settings = name_service.settings
    reports = [read_namenode(address, 10, settings.ca) for address in settings.namenodes]
    assert [report.state for report in reports] == ["active", "standby"]
    assert find_serving(reversed(reports)) == reports[0]


def test_a_stock_client_reads_from_the_active_namenode(name_service: HaHdfs) -> None:
    settings = name_service.settings
    open_storage(settings).write_new("shared/file", b"content")
    session = requests.Session()
    session.trust_env = False  # a CA of the environment would replace this one
    session.verify = str(settings.ca)
    addresses = settings.webhdfs.replace(",", ";")
    client = hdfs.InsecureClient(addresses, user="reader", session=session)
    with client.read("/hourmark/shared/file") as content:
        assert content.read() == b"content"


def test_a_folder_of_another_user_is_not_written(name_service: HaHdfs) -> None:
    open_hdfs(name_service.settings).make_folder("protected")
    settings = name_service.settings.model_copy(update={"user": "visitor"})
    with pytest.raises(AccessDenied) as caught:
        open_hdfs(settings).make_folder("protected/folder")
    assert all(
        part in str(caught.value) for part in ("user=visitor", "protected/folder", "storage.user")
    )


@pytest.mark.parametrize(
    ("option", "limit", "reset"),
    [("-setQuota", "1", "-clrQuota"), ("-setSpaceQuota", "1k", "-clrSpaceQuota")],
)
def test_a_quota_is_an_error_until_it_is_raised(
    name_service: HaHdfs, option: str, limit: str, reset: str
) -> None:
    storage = open_hdfs(name_service.settings)
    folder = f"limited{option}"
    storage.make_folder(folder)
    name_service.dfsadmin(option, limit, f"/hourmark/{folder}")
    for unpublished in (False, True):
        with pytest.raises(QuotaExceeded, match=f"quota.*{folder}"):
            storage.write_new(f"{folder}/file", CONTENT, unpublished=unpublished)
        assert storage.list(folder) == []
    name_service.dfsadmin(reset, f"/hourmark/{folder}")
    storage.write_new(f"{folder}/file", CONTENT)
    assert storage.read(f"{folder}/file") == CONTENT


def test_the_driver_closes_an_hour_through_a_failover(driver: Scene, name_service: HaHdfs) -> None:
    pid = driver.run.pid
    hour = driver.begin_hour()
    name_service.fail_over("nn1", "nn2")
    assert_whole(driver.closed(hour))
    assert driver.run.pid == pid, "no restart"


def test_the_driver_waits_for_another_namenode(driver: Scene, name_service: HaHdfs) -> None:
    pid = driver.run.pid
    name_service.kill("nn2")
    hour = driver.begin_hour()
    driver.says("ConnectionRefusedError")  # of nn2; nn1 is a standby
    name_service.activate("nn1")
    assert_whole(driver.closed(hour))
    assert driver.run.pid == pid, "no restart"
    name_service.start("nn2")
