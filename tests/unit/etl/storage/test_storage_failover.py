"""The WebHDFS client with two NameNodes of one name service: standbys, dead and hung servers, and
failovers at any request.

Two small HTTP servers share their files, as NameNodes share the edit log. The same is tested on
real NameNodes in tests/faults/test_hdfs_failover.py.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator

import pytest
from tests.support.fake_hdfs import (
    FakeHdfs,
    Handler,
    Trouble,
    done_but_lost,
    lost,
    refusing,
    serving_hdfs,
)
from tests.support.ports import free_port

from hourmark.config.groups import StorageSettings
from hourmark_etl.storage import (
    AlreadyExists,
    NotFound,
    StorageError,
    WebHdfs,
    open_storage,
    webhdfs_http,
)


@pytest.fixture
def standby(hdfs: FakeHdfs) -> Iterator[FakeHdfs]:
    """The other NameNode of `hdfs`."""
    with serving_hdfs() as other:
        other.names, other.ids, other.is_standby = hdfs.names, hdfs.ids, True
        yield other


@pytest.fixture
def service(hdfs: FakeHdfs, standby: FakeHdfs, storage: WebHdfs) -> WebHdfs:
    """The client of both; `hdfs` is active and configured first."""
    return dataclasses.replace(storage, namenodes=(hdfs.address, standby.address))


def fail_over(active: FakeHdfs, standby: FakeHdfs) -> None:
    active.is_standby, standby.is_standby = True, False


def failing_over(trouble: Trouble, other: FakeHdfs) -> Trouble:
    """The trouble; the other NameNode is active before the client sees it."""

    def both(handler: Handler, operation: str) -> bool:
        fail_over(handler.server, other)
        return trouble(handler, operation)

    return both


def test_the_setting_lists_the_namenodes() -> None:
    found = open_storage(
        StorageSettings(root="hdfs://events/hourmark", webhdfs="http://nn1:9870/, http://nn2:9870")
    )
    assert isinstance(found, WebHdfs)
    assert found.namenodes == ("http://nn1:9870", "http://nn2:9870")
    assert found.url("a") == "hdfs://events/hourmark/a"


def test_a_standby_is_asked_once(hdfs: FakeHdfs, standby: FakeHdfs, service: WebHdfs) -> None:
    fail_over(hdfs, standby)
    service.write_new("new/file", b"content")
    assert service.read("new/file") == b"content"
    assert hdfs.asked == ["CREATE"] and hdfs.names["/root/new/file"] == b"content"
    hdfs.asked.clear()
    copy = pickle.loads(pickle.dumps(service))
    assert copy.exists("new/file") and not hdfs.asked, "a process remembers who is active"


def test_each_operation_goes_on_after_a_failover(
    hdfs: FakeHdfs, standby: FakeHdfs, service: WebHdfs
) -> None:
    service.write_new("folder/file", b"content")
    fail_over(hdfs, standby)
    service.rename_new("folder", "moved")
    fail_over(standby, hdfs)
    assert [entry.name for entry in service.list("moved")] == ["file"]
    fail_over(hdfs, standby)
    service.delete("moved")
    fail_over(standby, hdfs)
    service.make_folder("made")
    assert "/root/moved" not in hdfs.names and "/root/made" in hdfs.names


def test_a_namenode_that_refuses_connections_is_passed_over(
    hdfs: FakeHdfs, storage: WebHdfs
) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    service = dataclasses.replace(storage, namenodes=(dead, hdfs.address), retry_pauses_s=())
    service.write_new("file", b"content")
    service.rename_new("file", "moved")
    assert service.read("moved") == b"content"


def test_a_hung_namenode_is_left_for_the_other(
    hdfs: FakeHdfs, standby: FakeHdfs, service: WebHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhdfs_http, "TIMEOUT_S", (1.0, 0.2))

    def silent(handler: Handler, _: str) -> bool:
        fail_over(hdfs, standby)
        hdfs.over.wait(20)
        handler.close_connection = True
        return True

    hdfs.troubles = [("MKDIRS", silent)]
    service.make_folder("made")
    assert "/root/made" in hdfs.names and standby.asked == ["MKDIRS"]


@pytest.mark.parametrize("unpublished", [False, True])
@pytest.mark.parametrize("trouble", [lost, done_but_lost])
@pytest.mark.parametrize("content", [None, b"content"], ids=["folder", "file"])
def test_a_rename_whose_response_is_lost_in_a_failover_happens_once(
    hdfs: FakeHdfs,
    standby: FakeHdfs,
    service: WebHdfs,
    content: bytes | None,
    trouble: Trouble,
    unpublished: bool,
) -> None:
    hdfs.names["/root/source"] = content
    hdfs.troubles = [("RENAME", failing_over(trouble, standby))]
    service.rename_new("source", "target", unpublished=unpublished)
    assert "/root/source" not in hdfs.names and hdfs.names["/root/target"] == content
    assert hdfs.asked.count("RENAME") == 1


def test_the_target_of_another_client_is_not_ours_after_a_failover(
    hdfs: FakeHdfs, standby: FakeHdfs, service: WebHdfs
) -> None:
    hdfs.names |= {"/root/source": None, "/root/target": b"other"}
    hdfs.troubles = [("RENAME", failing_over(lost, standby))]
    with pytest.raises(AlreadyExists):
        service.rename_new("source", "target")
    assert hdfs.names["/root/source"] is None and hdfs.names["/root/target"] == b"other"


def test_a_source_that_another_client_took_during_a_failover_is_not_found(
    hdfs: FakeHdfs, standby: FakeHdfs, service: WebHdfs
) -> None:
    hdfs.names["/root/source"] = None

    def taken(handler: Handler, operation: str) -> bool:
        del handler.server.names["/root/source"]
        return lost(handler, operation)

    hdfs.troubles = [("RENAME", failing_over(taken, standby))]
    with pytest.raises(NotFound):
        service.rename_new("source", "target")


@pytest.mark.parametrize("operation", ["CREATE", "CREATE data", "GETFILESTATUS", "RENAME"])
@pytest.mark.parametrize("trouble", [lost, done_but_lost, refusing(403, "StandbyException")])
def test_a_write_during_a_failover_is_whole_or_an_error(
    hdfs: FakeHdfs, standby: FakeHdfs, service: WebHdfs, operation: str, trouble: Trouble
) -> None:
    hdfs.troubles = [(operation, failing_over(trouble, standby))]
    try:
        service.write_new("new/file", b"content")
    except StorageError:
        assert operation == "CREATE data", "only an upload that has begun cannot be sent again"
        assert "/root/new/file" not in hdfs.names
        service.write_new("new/file", b"content")
    assert hdfs.names["/root/new/file"] == b"content"
    assert not [name for name in hdfs.names if "unfinished/" in name]


def test_without_an_active_namenode_the_error_names_all_and_the_next_call_recovers(
    hdfs: FakeHdfs, standby: FakeHdfs, service: WebHdfs
) -> None:
    hdfs.is_standby = True
    with pytest.raises(StorageError, match="StandbyException") as caught:
        service.exists("file")
    assert all(server.address.partition("//")[2] in str(caught.value) for server in (hdfs, standby))
    assert "storage.webhdfs" in str(caught.value)
    assert len(hdfs.asked) == len(standby.asked) == 3, "attempts are bounded"
    standby.is_standby = False
    assert not service.exists("file")


def test_safe_mode_of_the_active_namenode_is_reported_at_once(
    hdfs: FakeHdfs, standby: FakeHdfs, service: WebHdfs
) -> None:
    hdfs.troubles = [("MKDIRS", refusing(403, "SafeModeException", "Name node is in safe mode."))]
    with pytest.raises(StorageError, match="safe mode"):
        service.make_folder("made")
    assert not standby.asked
