"""WebHDFS over HTTPS: certificates of NameNodes and DataNodes are verified against `storage.ca`."""

from __future__ import annotations

import dataclasses
import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.certificates import Authority, Pair
from tests.support.fake_hdfs import FakeHdfs, serving_hdfs
from tests.support.http_server import Answering, serving

from hourmark.config.groups import StorageSettings
from hourmark.errors import ConfigError
from hourmark_etl.storage import StorageError, WebHdfs, open_storage
from hourmark_etl.storage.namenode import read_namenode


def server_side(pair: Pair) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls")


@pytest.fixture
def secure(authority: Authority) -> Iterator[FakeHdfs]:
    """NameNode and DataNode with a certificate of the authority."""
    with serving_hdfs(server_side(authority.issue("namenode"))) as server:
        yield server


@pytest.fixture
def client(secure: FakeHdfs, storage: WebHdfs, authority: Authority) -> WebHdfs:
    return dataclasses.replace(storage, namenodes=(secure.address,), ca=authority.ca)


def test_files_are_written_renamed_and_read_over_tls(client: WebHdfs) -> None:
    client.write_new("folder/file", b"content" * 100_000)
    client.rename_new("folder", "moved")
    assert client.read("moved/file") == b"content" * 100_000


def test_a_server_of_another_authority_is_refused(client: WebHdfs, tmp_path: Path) -> None:
    other = dataclasses.replace(client, ca=Authority(tmp_path / "other").ca)
    with pytest.raises(StorageError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        other.exists("file")
    assert "storage.ca must contain the CA of this server" in str(caught.value)


def test_a_certificate_of_another_host_is_refused(storage: WebHdfs, authority: Authority) -> None:
    with serving_hdfs(server_side(authority.issue("other", "namenode-2"))) as server:
        client = dataclasses.replace(storage, namenodes=(server.address,), ca=authority.ca)
        with pytest.raises(StorageError, match="IP address mismatch"):
            client.exists("file")


def test_new_connections_use_a_file_that_was_replaced(
    client: WebHdfs, authority: Authority, tmp_path: Path
) -> None:
    replaced = tmp_path / "replaced.pem"
    shutil.copy(Authority(tmp_path / "other").ca, replaced)
    rotating = dataclasses.replace(client, ca=replaced)
    with pytest.raises(StorageError):
        rotating.exists("file")
    shutil.copy(authority.ca, replaced)
    assert not rotating.exists("file")


def test_a_file_without_certificates_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for file in (tmp_path / "empty.pem", tmp_path / "none.pem"):
        settings = StorageSettings(root="hdfs://events/h", webhdfs="https://nn1:9871", ca=file)
        with pytest.raises(ConfigError, match=r"storage\.ca"):
            open_storage(settings)


def test_the_state_of_a_namenode_is_read_over_tls(authority: Authority, tmp_path: Path) -> None:
    class NameNode(Answering):
        def do_GET(self) -> None:
            self.answer(200, json.dumps({"beans": [{"State": "active"}]}).encode())

    with serving(NameNode, server_side(authority.issue("namenode"))) as address:
        assert read_namenode(f"https://{address}", 10, authority.ca).state == "active"
        refused = read_namenode(f"https://{address}", 10, Authority(tmp_path / "other").ca)
    assert not refused.serves and "CERTIFICATE_VERIFY_FAILED" in refused.failure
