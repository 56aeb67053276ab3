"""WebHDFS when the network or the NameNode misbehaves: answers that get lost, safe mode, standby,
short reads.

A small HTTP server plays NameNode and DataNode; the names it keeps are a dict. The contract itself
is proved on real HDFS.
"""

from __future__ import annotations

import pytest
from tests.support.fake_hdfs import FakeHdfs, Handler, Trouble, done_but_lost, lost, refusing

from hourmark.config.groups import StorageSettings
from hourmark_etl.storage import (
    AccessDenied,
    AlreadyExists,
    FolderStorage,
    NoSpace,
    NotFound,
    QuotaExceeded,
    SafeMode,
    StorageError,
    WebHdfs,
    open_storage,
    webhdfs_http,
)


def test_settings_name_the_backend() -> None:
    found = open_storage(
        StorageSettings(
            root="hdfs://namenode:8020/hourmark/", webhdfs="http://namenode:9870/", user="me"
        )
    )
    assert found == WebHdfs(
        filesystem="hdfs://namenode:8020",
        root="/hourmark",
        namenodes=("http://namenode:9870",),
        user="me",
        replication=3,
    )
    assert found.url("a/b c") == "hdfs://namenode:8020/hourmark/a/b c"
    assert (
        open_storage(StorageSettings(root="hdfs://namenode:8020")).url("a")
        == "hdfs://namenode:8020/a"
    )
    assert (
        open_storage(StorageSettings(root="file:///srv/hourmark")).url("a")
        == "file:///srv/hourmark/a"
    )


def test_a_lost_question_is_asked_again(hdfs: FakeHdfs, storage: FolderStorage) -> None:
    hdfs.names["/root/file"] = b"content"
    hdfs.troubles = [("GETFILESTATUS", lost), ("OPEN", lost)]
    assert storage.read("file") == b"content"
    hdfs.troubles = [("DELETE", done_but_lost), ("MKDIRS", done_but_lost)]
    storage.delete("file")
    storage.make_folder("folder")
    assert hdfs.names == {"/root": None, "/root/folder": None}


def test_questions_are_bounded(hdfs: FakeHdfs, storage: FolderStorage) -> None:
    hdfs.troubles = [("GETFILESTATUS", lost)] * 9
    with pytest.raises(StorageError, match="no response from 127") as caught:
        storage.size("file")
    assert hdfs.asked == ["GETFILESTATUS"] * 3
    assert "storage.webhdfs" in str(caught.value) and "hdfs://namenode:8020/root/file" in str(
        caught.value
    )


@pytest.mark.parametrize("exception", ["StandbyException", "RetriableException"])
def test_a_namenode_that_says_later_is_asked_again(
    hdfs: FakeHdfs, storage: FolderStorage, exception: str
) -> None:
    hdfs.troubles = [("GETFILESTATUS", refusing(403, exception))]
    assert storage.exists("")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((403, "SafeModeException", "Cannot create. Name node is in safe mode."), SafeMode),
        ((403, "RetriableException", "Name node is in safe mode."), SafeMode),
        ((403, "AccessControlException", "Permission denied: user=tester"), AccessDenied),
        ((403, "DSQuotaExceededException", "quota"), QuotaExceeded),
        ((403, "NSQuotaExceededException", "quota"), QuotaExceeded),
        (
            (403, "IOException", "File could only be written to 0 of the 1 minReplication nodes."),
            NoSpace,
        ),
        (
            (403, "IOException", "Failed to find datanode, suggest to check cluster health."),
            webhdfs_http.OutcomeUnknown,
        ),
        ((403, "IOException", "what nobody has heard of"), StorageError),
        ((500, "NullPointerException", ""), webhdfs_http.OutcomeUnknown),
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "CREATE data", "RENAME"])
def test_what_hdfs_refuses_is_clear(
    hdfs: FakeHdfs,
    storage: FolderStorage,
    operation: str,
    answer: tuple[int, str, str],
    error: type[StorageError],
) -> None:
    hdfs.troubles = [(operation, refusing(*answer))] * 9
    with pytest.raises(StorageError) as caught:
        storage.write_new("file", b"x" * 3_000_000)
    assert type(caught.value) is error
    assert "/root/file" not in hdfs.names
    assert not [name for name in hdfs.names if "unfinished/" in name]


def test_an_answer_without_reason_is_an_error_all_the_same(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    def trouble(handler: Handler, _: str) -> bool:
        handler.answer(418, content=b"<html>\xff")
        return True

    hdfs.troubles = [("GETFILESTATUS", trouble)] * 9
    with pytest.raises(StorageError, match="418"):
        storage.exists("file")


def test_a_short_read_is_never_a_result(hdfs: FakeHdfs, storage: FolderStorage) -> None:
    hdfs.names["/root/file"] = b"content"

    def short(handler: Handler, _: str) -> bool:
        handler.answer(200, content=b"cont", kind="application/octet-stream")
        return True

    hdfs.troubles = [("OPEN data", short)]
    assert storage.read("file") == b"content"
    hdfs.troubles = [("OPEN data", short)] * 9
    with pytest.raises(StorageError, match="4 of 7 bytes"):
        storage.read("file")


def test_an_upload_that_breaks_off_publishes_nothing(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    hdfs.troubles = [("CREATE data", lost)]
    with pytest.raises(StorageError, match="ended the upload"):
        storage.write_new("file", b"x" * 30_000_000)
    assert "/root/file" not in hdfs.names


def test_an_upload_stored_in_part_publishes_nothing(hdfs: FakeHdfs, storage: FolderStorage) -> None:
    hdfs.stored_max = 4
    with pytest.raises(StorageError, match="100 bytes were sent, but 4 are stored"):
        storage.write_new("file", b"x" * 100)
    assert "/root/file" not in hdfs.names


def rename(hdfs: FakeHdfs, storage: FolderStorage, *troubles: Trouble) -> None:
    """Of a folder, each try with its trouble."""
    hdfs.names["/root/source"] = None
    hdfs.troubles = [("RENAME", trouble) for trouble in troubles]
    storage.rename_new("source", "target")


WRITTEN = [
    "CREATE",
    "CREATE data",
    "GETFILESTATUS",
    "RENAME",
]  # under a name of its own first, and looked at there


def test_a_file_into_a_folder_that_is_there_takes_four_requests(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    """Closing is as fast as its requests are few: a folder is made only where it is missed, and
    Hadoop's word is taken.
    """
    storage.write_new("new/file", b"1")
    assert hdfs.asked == [*WRITTEN, "MKDIRS", "RENAME"]
    hdfs.asked.clear()
    storage.write_new("new/other", b"2")
    assert hdfs.asked == WRITTEN
    hdfs.asked.clear()
    storage.rename_new("new/file", "new/moved")
    assert hdfs.asked == ["GETFILESTATUS", "RENAME"]
    assert hdfs.names["/root/new/moved"] == b"1" and hdfs.names["/root/new/other"] == b"2"
    hdfs.asked.clear()
    storage.rename_new("new", "bucket")
    assert hdfs.asked == ["GETFILESTATUS", "RENAME", "GETFILESTATUS"], (
        "what is published is looked for"
    )


def test_a_file_that_nobody_looks_for_takes_two_requests_and_two_to_read(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    storage.write_new("attempt/file", b"content", unpublished=True)
    assert hdfs.asked == ["CREATE", "CREATE data"]
    hdfs.asked.clear()
    assert storage.read("attempt/file", size=7) == b"content"
    assert hdfs.asked == ["OPEN", "OPEN data"]


def test_a_file_that_nobody_else_moves_takes_one_request(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    storage.write_new("attempt/file", b"content", unpublished=True)
    hdfs.asked.clear()
    storage.rename_new("attempt/file", "attempt/moved", unpublished=True)
    assert hdfs.asked == ["RENAME"] and hdfs.names["/root/attempt/moved"] == b"content"
    with pytest.raises(NotFound):
        storage.rename_new("attempt/file", "attempt/again", unpublished=True)


@pytest.mark.parametrize("troubles", [[lost], [done_but_lost], [lost, done_but_lost]])
def test_nor_is_it_looked_at_before_where_an_answer_is_lost(
    hdfs: FakeHdfs, storage: FolderStorage, troubles: list[Trouble]
) -> None:
    storage.write_new("attempt/file", b"content", unpublished=True)
    hdfs.troubles = [("RENAME", trouble) for trouble in troubles]
    storage.rename_new("attempt/file", "attempt/moved", unpublished=True)
    assert "/root/attempt/file" not in hdfs.names
    assert hdfs.names["/root/attempt/moved"] == b"content"


@pytest.mark.parametrize("operation", ["CREATE", "CREATE data"])
def test_of_a_file_that_nobody_looks_for_nothing_is_left_either(
    hdfs: FakeHdfs, storage: FolderStorage, operation: str
) -> None:
    hdfs.troubles = [(operation, refusing(403, "AccessControlException"))]
    with pytest.raises(AccessDenied):
        storage.write_new("file", b"content", unpublished=True)
    assert not storage.exists("file")


def test_nor_is_what_stood_there_before_removed(hdfs: FakeHdfs, storage: FolderStorage) -> None:
    storage.write_new("file", b"first")
    hdfs.troubles = [("CREATE data", refusing(403, "FileAlreadyExistsException"))]
    with pytest.raises(AlreadyExists):
        storage.write_new("file", b"second", unpublished=True)
    assert storage.read("file") == b"first"


@pytest.mark.parametrize("trouble", [lost, done_but_lost])
def test_a_lost_rename_into_a_folder_that_is_missed_is_asked_again(
    hdfs: FakeHdfs, storage: FolderStorage, trouble: Trouble
) -> None:
    hdfs.names["/root/source"] = b"content"
    hdfs.troubles = [("RENAME", trouble)]
    storage.rename_new("source", "deep/folder/target")
    assert hdfs.names["/root/deep/folder/target"] == b"content" and "/root/source" not in hdfs.names


def test_where_the_source_goes_while_the_folder_is_made_it_is_not_found(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    hdfs.names["/root/source"] = b"content"

    def taken(handler: Handler, _: str) -> bool:
        del handler.server.names["/root/source"]
        return False

    hdfs.troubles = [("MKDIRS", taken)]
    with pytest.raises(NotFound, match="rename source"):
        storage.rename_new("source", "deep/target")


def test_a_rename_that_never_arrived_is_asked_again(hdfs: FakeHdfs, storage: FolderStorage) -> None:
    rename(hdfs, storage, lost, lost)
    assert "/root/target" in hdfs.names and "/root/source" not in hdfs.names


def test_a_rename_whose_answer_was_lost_is_looked_up(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    rename(hdfs, storage, done_but_lost)
    assert "/root/target" in hdfs.names and "/root/source" not in hdfs.names
    assert hdfs.asked.count("RENAME") == 1


def test_a_lost_rename_whose_source_another_took_and_target_another_made_is_not_ours(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    """Source gone and target there, as after a rename of our own: only the file id tells."""

    def others(handler: Handler, _: str) -> bool:
        handler.server.names.pop("/root/source")
        handler.server.names["/root/target"] = b"other"
        return lost(handler, "RENAME")

    with pytest.raises(AlreadyExists):
        rename(hdfs, storage, others)


def test_of_two_renames_of_one_source_one_wins(hdfs: FakeHdfs, storage: FolderStorage) -> None:
    def other_first(handler: Handler, _: str) -> bool:
        handler.server.ids["/root/target"] = handler.server.id_of("/root/source")
        handler.server.names["/root/target"] = handler.server.names.pop("/root/source")
        return False

    with pytest.raises(NotFound):
        rename(hdfs, storage, other_first)


def test_a_lost_rename_that_somebody_else_won_already_exists(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    hdfs.names |= {"/root/source": None, "/root/target": b"other"}
    hdfs.troubles = [("RENAME", lost)]
    with pytest.raises(AlreadyExists) as caught:
        storage.rename_new("source", "target")
    assert type(caught.value) is AlreadyExists
    assert hdfs.names["/root/source"] is None and hdfs.names["/root/target"] == b"other"


def test_a_lost_rename_of_what_is_gone_is_not_found(hdfs: FakeHdfs, storage: FolderStorage) -> None:
    hdfs.troubles = [("RENAME", lost)]
    with pytest.raises(NotFound):
        storage.rename_new("source", "target")


def test_renames_are_bounded_too(hdfs: FakeHdfs, storage: FolderStorage) -> None:
    with pytest.raises(StorageError, match="no response"):
        rename(hdfs, storage, *[lost] * 9)
    assert hdfs.asked.count("RENAME") == 3


def test_a_rename_answered_well_that_did_not_happen_is_an_error(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    def liar(handler: Handler, _: str) -> bool:
        handler.answer(200, {"boolean": True})
        return True

    with pytest.raises(StorageError, match="did not happen"):
        rename(hdfs, storage, liar)


def test_a_finished_file_whose_rename_got_no_answer_is_there(
    hdfs: FakeHdfs, storage: FolderStorage
) -> None:
    hdfs.troubles = [("RENAME", done_but_lost)]
    storage.write_new("file", b"content")
    assert hdfs.names["/root/file"] == b"content"


def test_proxies_of_the_environment_are_not_used(
    hdfs: FakeHdfs, storage: FolderStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert storage.exists("")
