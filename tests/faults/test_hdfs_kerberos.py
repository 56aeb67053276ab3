"""A real HDFS with Kerberos, and a KDC that is away: writers and the ETL go on without a restart,
and lose nothing.

Tickets expire after 15 seconds, delegation tokens after `TOKEN_S`. Needs the programs of krb5-kdc
and krb5-admin-server (Debian), and the extra `hourmark-etl[kerberos]`.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
import requests
from tests.faults.outcome import LONG
from tests.support.etl_scene import Scene, scene_on
from tests.support.ha_hdfs import HaHdfs
from tests.support.kdc import TICKET_S, Kdc, missing_programs
from tests.support.publisher import Publisher
from tests.support.waiting import wait_for

from hourmark_etl.storage import LoginFailed, NotAuthenticated, Storage, WebHdfs, open_storage
from hourmark_etl.storage.kerberos import KerberosLogin, kerberos_login
from hourmark_etl.storage.namenode import read_namenode
from hourmark_etl.storage.spnego import authorizer
from hourmark_etl.storage.webhdfs_http import TokenRejected
from hourmark_infra.stack import LocalStack

pytest.importorskip("gssapi")
pytestmark = [
    *LONG,
    pytest.mark.skipif(bool(missing_programs()), reason=f"not installed: {missing_programs()}"),
]
TOKEN_S: Final = 90
DRIVER_ROOT: Final = "/hourmark-run"  # of `scene`


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with pytest.MonkeyPatch.context() as patch, Kdc(tmp_path_factory.mktemp("kdc")) as started:
        patch.setitem(os.environ, "KRB5_CONFIG", started.environment["KRB5_CONFIG"])
        yield started


@pytest.fixture(scope="module")
def cluster(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaHdfs]:
    programs = LocalStack.load_or_create(tmp_path_factory.mktemp("home"), mirror=False).programs
    with HaHdfs(programs, tmp_path_factory.mktemp("hdfs"), kdc, TOKEN_S) as started:
        folders = ("/hourmark", DRIVER_ROOT)
        started.dfs("-mkdir", *folders)
        started.dfs("-chown", "hourmark", *folders)
        yield started


@pytest.fixture
def storage(cluster: HaHdfs) -> WebHdfs:
    """With a login of its own."""
    kerberos_login.cache_clear()
    found = open_storage(cluster.settings)
    assert isinstance(found, WebHdfs)
    return found


def test_the_principal_of_the_keytab_owns_what_it_writes(storage: WebHdfs, cluster: HaHdfs) -> None:
    storage.write_new("owned/file", b"content" * 1_000_000)
    storage.rename_new("owned", "moved")
    assert storage.read("moved/file") == b"content" * 1_000_000
    assert "hourmark" in cluster.dfs("-ls", "/hourmark/moved")


def test_a_client_without_kerberos_is_refused(storage: WebHdfs) -> None:
    with pytest.raises(NotAuthenticated, match=r"storage\.principal"):
        dataclasses.replace(storage, kerberos=None).exists("file")


def test_the_state_of_each_namenode_is_reported(cluster: HaHdfs) -> None:
    settings = cluster.settings
    authorize = authorizer(settings)
    reports = [read_namenode(address, 10, settings.ca, authorize) for address in settings.namenodes]
    assert [report.state for report in reports] == ["active", "standby"]
    unknown = read_namenode(settings.namenodes[0], 10, settings.ca)
    assert unknown.serves and unknown.state is None, "its status requires Kerberos"


def test_a_keytab_of_an_old_key_is_refused(kdc: Kdc, cluster: HaHdfs, tmp_path: Path) -> None:
    old = tmp_path / "old.keytab"
    old.write_bytes(kdc.keytab("rotated").read_bytes())
    kdc.keytab("rotated")  # a new key
    changes = {"principal": "rotated@HOURMARK.TEST", "keytab": old}
    rotated = open_storage(cluster.settings.model_copy(update=changes))
    with pytest.raises(LoginFailed, match=r"no ticket of rotated@.*storage\.keytab"):
        rotated.exists("file")


def test_a_stock_client_reads_with_a_ticket(
    kdc: Kdc, cluster: HaHdfs, storage: WebHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = pytest.importorskip("hdfs.ext.kerberos", reason="needs requests-kerberos")
    storage.write_new("shared/file", b"content")
    kdc.kinit("reader", kdc.keytab("reader"))
    monkeypatch.setenv("KRB5CCNAME", kdc.environment["KRB5CCNAME"])
    session = requests.Session()
    session.trust_env = False  # a CA of the environment would replace this one
    session.verify = str(cluster.settings.ca)
    addresses = cluster.settings.webhdfs.replace(",", ";")
    client = stock.KerberosClient(addresses, session=session)
    with client.read("/hourmark/shared/file") as content:
        assert content.read() == b"content"


def test_publishing_goes_on_through_expired_tickets_renewed_tokens_and_no_kdc(
    kdc: Kdc, storage: WebHdfs
) -> None:
    ended = threading.Event()
    publishers = [Publisher(storage, f"load-{number}", pause_s=1.0) for number in range(3)]
    received = pickle.loads(pickle.dumps(storage))  # as by an executor, whose task takes long

    def go_on(seconds: float) -> None:
        """For so long, and until each has published more."""
        until = time.monotonic() + seconds
        before = [len(p.published) for p in publishers]
        wait_for(
            lambda: (
                time.monotonic() > until
                and all(len(p.published) > n for p, n in zip(publishers, before, strict=True))
            ),
            "publishing goes on",
            TOKEN_S,
        )

    def without_login() -> bool:
        errors = [error for publisher in publishers for error in publisher.errors]
        return any(isinstance(error, LoginFailed) for error in errors)

    assert isinstance(storage.kerberos, KerberosLogin)
    first = storage.kerberos.token()
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(publisher.run, ended) for publisher in publishers]
        try:
            go_on(2 * TICKET_S)
            kdc.stop()
            go_on(TICKET_S)
            assert not without_login(), "the token is still valid"
            wait_for(without_login, "the token expires", 2 * TOKEN_S)
            kdc.start()
            wait_for(lambda: _is_back(storage), "a login", 60)
            go_on(TOKEN_S)
        finally:
            ended.set()
            kdc.stop()
            kdc.start()
        for run in runs:
            run.result()
    assert storage.kerberos.token() != first
    for publisher in publishers:
        publisher.check()
    impatient = dataclasses.replace(received, retry_pauses_s=())
    for operation in (
        impatient.exists,
        impatient.read,
        lambda path: impatient.write_new(path, b""),
    ):
        with pytest.raises(TokenRejected, match=r"expired|found in cache"):
            operation("owned-by-nobody")
    assert not storage.exists("owned-by-nobody")


def _is_back(storage: Storage) -> bool:
    try:
        return not storage.exists("none")
    except LoginFailed:
        return False


@pytest.fixture(scope="module")
def driver(
    cluster: HaHdfs, stack: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """The ETL on the stack's Kafka and this HDFS; an hour was closed."""
    with scene_on(cluster.settings, stack, tmp_path_factory.mktemp("driver")) as made:
        yield made


def test_the_driver_closes_all_hours_after_the_kdc_was_away_for_longer_than_its_token(
    driver: Scene, kdc: Kdc
) -> None:
    pid, hours = driver.run.pid, [driver.begin_hour()]
    kdc.stop()

    def waits_for_a_login() -> bool:
        hours.append(driver.begin_hour())
        return driver.run.logged("check that the KDC can be reached")

    try:
        wait_for(waits_for_a_login, f"the token expires (see {driver.run.log})", 4 * TOKEN_S, 10)
        assert driver.run.logged(f"{driver.types[0]} {hours[0]} closed"), "with the valid token"
        hours.append(driver.begin_hour())
    finally:
        kdc.start()
    wait_for(lambda: _is_back(driver.run.storage), "a login of this process", 2 * TOKEN_S)
    driver.closed(hours[-1])  # judges all hours
    manifests = [driver.run.manifest(name, hour) for name in driver.types for hour in hours]
    assert {made and made.grade.value for made in manifests} == {"proved"}
    assert driver.run.running() and driver.run.pid == pid, "no restart"
    log = driver.run.log.read_text()
    assert "Kerberos login of hourmark/127.0.0.1@HOURMARK.TEST failed: no ticket" in log
    assert "resolved after" in log and "delegation=" not in log
