"""Kerberos over WebHDFS: logins, delegation tokens, their renewal, and a KDC that is away.

Tickets are fake here. tests/faults/test_hdfs_kerberos.py has a real KDC and a real HDFS.
"""

from __future__ import annotations

import dataclasses
import logging
import pickle
import traceback
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.support.fake_hdfs import FakeHdfs, Handler, lost, refusing, serving_hdfs

from hourmark.config.groups import StorageSettings
from hourmark.config.redaction import forget_secrets, redact
from hourmark.errors import ConfigError
from hourmark_etl.storage import LoginFailed, StorageError, WebHdfs, open_storage, spnego
from hourmark_etl.storage.kerberos import KerberosLogin, ReceivedToken
from hourmark_etl.storage.spnego import NegotiationFailed
from hourmark_etl.storage.webhdfs_http import TokenRejected, WebHdfsTarget

HOUR_S = 3600
PRINCIPAL = "hourmark/etl@EXAMPLE.COM"


class Kdc:
    """Issues tickets while it is not away."""

    def __init__(self) -> None:
        self.is_away = False
        self.attempts = 0

    def negotiate(self, host: str, principal: str, keytab: Path | None) -> str:
        self.attempts += 1
        assert keytab is not None
        if self.is_away:
            raise NegotiationFailed("Cannot contact any KDC for realm 'EXAMPLE.COM'")
        return f"Negotiate {principal} to {host}"


@pytest.fixture
def clock(hdfs: FakeHdfs) -> FakeClock:
    hdfs.clock = made = FakeClock()
    hdfs.tokens = set()
    return made


@pytest.fixture
def kdc() -> Kdc:
    return Kdc()


@pytest.fixture
def secure(storage: WebHdfs, kdc: Kdc, clock: FakeClock) -> WebHdfs:
    return with_login(storage, kdc, clock)


def with_login(storage: WebHdfs, kdc: Kdc, clock: FakeClock) -> WebHdfs:
    root = WebHdfsTarget(
        namenodes=storage.namenodes,
        ca=None,
        file="/",
        user="",
        path="",
        url=storage.filesystem,
        retry_pauses_s=(),
    )
    login = KerberosLogin(root, PRINCIPAL, Path("keytab"), kdc.negotiate, clock)
    return dataclasses.replace(storage, kerberos=login)


def token_of(storage: WebHdfs) -> str:
    assert storage.kerberos is not None
    return storage.kerberos.token()


def test_all_requests_after_the_login_contain_one_delegation_token(
    hdfs: FakeHdfs, secure: WebHdfs
) -> None:
    secure.write_new("folder/file", b"content" * 100_000)
    secure.rename_new("folder", "moved")
    assert secure.read("moved/file") == b"content" * 100_000
    assert [entry.name for entry in secure.list("moved")] == ["file"]
    secure.delete("moved")
    assert hdfs.logins == [f"Negotiate {PRINCIPAL} to 127.0.0.1"] * 2
    assert len(hdfs.tokens or ()) == 1


def test_without_kerberos_settings_the_error_names_them(storage: WebHdfs, clock: FakeClock) -> None:
    with pytest.raises(StorageError, match=r"answered 401.*set storage\.principal"):
        storage.exists("file")
    assert clock.now_ms()


def test_a_cluster_without_kerberos_issues_no_token(hdfs: FakeHdfs, secure: WebHdfs) -> None:
    hdfs.tokens = None
    with pytest.raises(LoginFailed, match="it does not use Kerberos"):
        secure.exists("file")


def test_the_token_is_replaced_when_half_of_its_time_is_over(
    secure: WebHdfs, clock: FakeClock
) -> None:
    first = token_of(secure)
    clock.advance(11.9 * HOUR_S)
    assert token_of(secure) == first
    clock.advance(0.2 * HOUR_S)
    assert token_of(secure) != first


def test_connections_that_were_closed_meanwhile_delay_no_login(
    hdfs: FakeHdfs,
    storage: WebHdfs,
    kdc: Kdc,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving_hdfs() as standby:
        standby.is_standby = True
        both = dataclasses.replace(storage, namenodes=(hdfs.address, standby.address))
        secure = with_login(both, kdc, clock)
        first = token_of(secure)
        clock.advance(12 * HOUR_S)
        standby.is_standby, standby.tokens = False, set()  # answers nothing, as below
        standby.troubles += [("GETDELEGATIONTOKEN", lost)] * 3
        hdfs.troubles += [("GETDELEGATIONTOKEN", lost), ("RENEWDELEGATIONTOKEN", lost)]
        with caplog.at_level(logging.INFO):
            assert token_of(secure) != first
    assert not caplog.records and len(hdfs.tokens or ()) == 2


def test_the_token_is_used_until_it_expires_while_the_kdc_is_away(
    secure: WebHdfs, kdc: Kdc, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    first = token_of(secure)
    kdc.is_away = True
    clock.advance(12 * HOUR_S)
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            assert not secure.exists("file") and token_of(secure) == first
        clock.advance(31)
        assert not secure.exists("file")
        assert kdc.attempts == 2 + 2, "not with each request"
        kdc.is_away = False
        clock.advance(31)
        assert token_of(secure) != first
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and "Cannot contact any KDC" in told[0] and "43200 s" in told[0]
    assert told[1].startswith("resolved after 62 s: ")


def test_no_request_is_sent_after_the_token_has_expired(
    hdfs: FakeHdfs, secure: WebHdfs, kdc: Kdc, clock: FakeClock
) -> None:
    assert not secure.exists("file")
    kdc.is_away = True
    clock.advance(25 * HOUR_S)
    hdfs.asked.clear()
    for _ in range(3):
        with pytest.raises(LoginFailed, match=r"Cannot contact any KDC.*storage\.keytab"):
            secure.write_new("file", b"content")
    assert kdc.attempts == 2 + 1 and not hdfs.asked
    kdc.is_away = False
    clock.advance(31)
    secure.write_new("file", b"content")


def test_a_rejected_token_is_replaced_and_the_operation_repeated(
    hdfs: FakeHdfs, secure: WebHdfs, clock: FakeClock
) -> None:
    assert not secure.exists("file")
    for rejected in (secure.make_folder, lambda path: secure.write_new(f"{path}/file", b"")):
        clock.advance(31)
        hdfs.tokens = set()  # as after a NameNode that lost its edits
        rejected("folder")
    assert secure.exists("folder/file")


def test_a_namenode_that_rejects_new_tokens_causes_few_logins(
    hdfs: FakeHdfs, secure: WebHdfs, kdc: Kdc, clock: FakeClock
) -> None:
    rejected = refusing(403, "InvalidToken", "token (…) can't be found in cache")
    for _ in range(10):
        hdfs.troubles += [("GETFILESTATUS", rejected)] * 3
        with pytest.raises(StorageError, match="can't be found in cache"):
            secure.exists("file")
    assert kdc.attempts == 2
    clock.advance(31)
    hdfs.troubles += [("GETFILESTATUS", rejected)] * 3
    with pytest.raises(StorageError, match="can't be found in cache"):
        secure.exists("file")
    assert kdc.attempts == 4
    assert not secure.exists("file")


def test_a_token_that_a_standby_does_not_know_yet_is_accepted_by_the_active_namenode(
    hdfs: FakeHdfs, secure: WebHdfs, kdc: Kdc, clock: FakeClock
) -> None:
    with serving_hdfs() as standby:
        standby.tokens = set()
        both = dataclasses.replace(secure, namenodes=(standby.address, hdfs.address))
        first = token_of(both)
        kdc.is_away = True
        assert not both.exists("file")
        assert token_of(both) == first and clock.now_ms()


def test_a_standby_causes_no_login(
    hdfs: FakeHdfs, secure: WebHdfs, kdc: Kdc, clock: FakeClock
) -> None:
    with serving_hdfs() as standby:  # as in Hadoop 3.5.0
        prefix = "Failed to obtain user group information: org.apache.hadoop.security.token."
        message = f"{prefix}SecretManager$InvalidToken: StandbyException"
        standby.troubles += [("GETFILESTATUS", refusing(403, "SecurityException", message))]
        both = dataclasses.replace(secure, namenodes=(standby.address, hdfs.address))
        first = token_of(both)
        clock.advance(31)
        assert not both.exists("file")
        assert token_of(both) == first and kdc.attempts == 2


def test_a_token_that_all_namenodes_reject_is_named(hdfs: FakeHdfs, secure: WebHdfs) -> None:
    received = dataclasses.replace(pickle.loads(pickle.dumps(secure)), retry_pauses_s=())
    hdfs.tokens = set()  # as after it has expired
    with serving_hdfs() as standby:
        standby.is_standby = True
        both = dataclasses.replace(received, namenodes=(hdfs.address, standby.address))
        with pytest.raises(
            TokenRejected, match=r"found in cache.*StandbyException.*new delegation"
        ):
            both.exists("file")


def test_the_login_fails_over_to_the_active_namenode(
    hdfs: FakeHdfs, storage: WebHdfs, kdc: Kdc, clock: FakeClock
) -> None:
    with serving_hdfs() as standby:
        standby.is_standby = True
        both = dataclasses.replace(storage, namenodes=(standby.address, hdfs.address))
        assert not with_login(both, kdc, clock).exists("file")


def test_a_login_that_hdfs_refuses_names_the_reason(hdfs: FakeHdfs, secure: WebHdfs) -> None:
    reason = refusing(403, "AuthorizationException", "User is not allowed")
    hdfs.troubles.append(("GETDELEGATIONTOKEN", reason))
    with pytest.raises(StorageError, match="User is not allowed"):
        secure.exists("file")


def test_clocks_that_differ_are_named(hdfs: FakeHdfs, secure: WebHdfs) -> None:
    hdfs.lifetime_ms = -60_000
    with pytest.raises(LoginFailed, match="expired 60 s ago; compare the clocks"):
        secure.exists("file")


def test_an_executor_receives_the_token_and_needs_no_kdc(
    hdfs: FakeHdfs, secure: WebHdfs, kdc: Kdc
) -> None:
    received = pickle.loads(pickle.dumps(secure))
    kdc.is_away = True
    received.write_new("file", b"content")
    assert token_of(received) == token_of(secure) and len(hdfs.logins) == 2
    assert token_of(pickle.loads(pickle.dumps(received))) == token_of(secure)


def test_another_process_of_the_driver_uses_its_token_until_it_is_due(
    hdfs: FakeHdfs, storage: WebHdfs, kdc: Kdc, clock: FakeClock
) -> None:
    driver, process = with_login(storage, kdc, clock), with_login(storage, kdc, clock)
    first = token_of(driver)
    received = pickle.loads(pickle.dumps(driver)).kerberos
    assert isinstance(process.kerberos, KerberosLogin) and isinstance(received, ReceivedToken)
    kdc.is_away = True
    process.kerberos.adopt(received)
    assert not process.exists("file") and token_of(process) == first and len(hdfs.logins) == 2
    clock.advance(12 * HOUR_S)
    assert token_of(process) == first
    kdc.is_away = False
    clock.advance(31)
    assert token_of(process) != first
    second = token_of(process)
    process.kerberos.adopt(received)
    assert token_of(process) == second, "it is newer"


def test_a_datanode_without_a_ticket_is_asked_again(hdfs: FakeHdfs, secure: WebHdfs) -> None:
    failure = refusing(403, "KerberosAuthException", "Login failure for user: hdfs/data-1")
    secure.write_new("file", b"content")
    hdfs.troubles += [("OPEN data", failure), ("GETFILESTATUS", failure)]
    assert secure.read("file") == b"content"


def test_an_executor_without_a_token_fails_its_task(
    secure: WebHdfs, kdc: Kdc, hdfs: FakeHdfs
) -> None:
    kdc.is_away = True
    received = pickle.loads(pickle.dumps(secure))
    with pytest.raises(LoginFailed, match="the driver has no delegation token: no ticket of"):
        received.exists("file")
    assert not hdfs.asked


def test_no_text_contains_the_token(hdfs: FakeHdfs, secure: WebHdfs) -> None:
    token = token_of(secure)
    received = pickle.loads(pickle.dumps(secure))
    assert token not in repr(secure) + repr(received)
    assert token not in redact(f"GET /webhdfs/v1/file?delegation={token}")


def test_an_executor_knows_that_the_token_is_a_secret_however_it_was_sent(secure: WebHdfs) -> None:
    token, pickled = token_of(secure), pickle.dumps(secure)
    for _ in range(2):
        forget_secrets()
        received = pickle.loads(pickled)
        assert token not in redact(f"GET /webhdfs/v1/file?delegation={token}")
        pickled = pickle.dumps(received)


def test_an_error_does_not_repeat_a_response_that_contains_a_token(
    hdfs: FakeHdfs, secure: WebHdfs
) -> None:
    def cut_off(handler: Handler, _: str) -> bool:
        handler.answer(200, content=b'{"Token": {"urlString": "x-secret-token", "x": ')
        return True

    hdfs.troubles.append(("GETDELEGATIONTOKEN", cut_off))
    with pytest.raises(StorageError, match="unexpected response") as caught:
        dataclasses.replace(secure, retry_pauses_s=()).exists("file")
    assert "x-secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keytab": "/etc/krb5.keytab"}, r"storage\.keytab requires storage\.principal"),
        ({"principal": PRINCIPAL, "user": "hdfs"}, r"storage\.user must be empty"),
    ],
)
def test_contradicting_settings_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StorageSettings.model_validate(changes)


def test_an_unreadable_keytab_or_a_missing_library_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = StorageSettings(principal=PRINCIPAL, keytab=tmp_path / "none")
    monkeypatch.setattr(spnego, "_MODULE", "json")  # any module
    with pytest.raises(ConfigError, match=r"storage\.keytab = .*none: .*\(No such file"):
        open_storage(settings)
    monkeypatch.setattr(spnego, "_MODULE", "gssapi_that_is_not_installed")
    with pytest.raises(ConfigError, match=r"hourmark-etl\[kerberos\]"):
        open_storage(settings)


def test_a_keytab_that_is_missing_while_the_driver_runs_stops_nothing(tmp_path: Path) -> None:
    settings = StorageSettings(principal=PRINCIPAL, keytab=tmp_path / "none", ca=tmp_path / "no")
    assert isinstance(open_storage(settings, is_start=False), WebHdfs)
