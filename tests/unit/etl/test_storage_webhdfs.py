"""WebHDFS when the network or the NameNode misbehaves: answers that get lost, safe mode, standby, short reads.

A small HTTP server plays NameNode and DataNode; the names it keeps are a dict. The contract itself is proved on real HDFS.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from etl.storage import (
    AccessDenied,
    AlreadyExists,
    NoSpace,
    NotFound,
    RenameUncertain,
    SafeMode,
    Storage,
    StorageError,
    WebHdfs,
    open_storage,
    webhdfs_http,
)
from hourmark.config import Storage as StorageSettings

Trouble = Callable[["Handler", str], bool]  # True: it has answered, or hung up, itself


class FakeHdfs(ThreadingHTTPServer):
    """Files by absolute path; None is a folder."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.names: dict[str, bytes | None] = {"/root": None}
        self.asked: list[str] = []
        self.troubles: list[tuple[str, Trouble]] = []  # taken one by one, each at the first request of its operation

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FakeHdfs

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.work()

    do_PUT = do_DELETE = do_GET

    def work(self) -> None:
        address = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(address.query).items()}
        self.file = unquote(address.path.removeprefix("/webhdfs/v1").removeprefix("/data"))
        operation = self.query["op"] + (" data" if address.path.startswith("/data") else "")
        self.server.asked.append(operation)
        for trouble in self.server.troubles:
            if trouble[0] == operation:
                self.server.troubles.remove(trouble)
                if trouble[1](self, operation):
                    return
                break
        getattr(self, operation.replace(" ", "_").lower())()

    def answer(self, status: int, value: object = None, *, location: str | None = None, content: bytes | None = None) -> None:
        body = content if content is not None else b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, exception: str, message: str) -> None:
        self.answer(status, {"RemoteException": {"exception": exception, "javaClassName": exception, "message": message}})

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(2)

    def getfilestatus(self) -> None:
        if self.file not in self.server.names:
            return self.refuse(404, "FileNotFoundException", f"File does not exist: {self.file}")
        content = self.server.names[self.file]
        kind = "DIRECTORY" if content is None else "FILE"
        return self.answer(200, {"FileStatus": {"type": kind, "length": len(content or b"")}})

    def mkdirs(self) -> None:
        self.server.names.setdefault(self.file, None)
        self.answer(200, {"boolean": True})

    def delete(self) -> None:
        self.answer(200, {"boolean": self.server.names.pop(self.file, None) is not None})

    def rename(self) -> None:
        assert self.query["renameoptions"] == "NONE"
        target = self.query["destination"]
        if self.file not in self.server.names:
            return self.refuse(404, "FileNotFoundException", f"rename source {self.file} is not found.")
        if target in self.server.names:
            return self.refuse(403, "FileAlreadyExistsException", f"rename destination {target} already exists")
        self.server.names[target] = self.server.names.pop(self.file)
        return self.answer(200)

    def create(self) -> None:
        assert self.query["overwrite"] == "false"
        self.answer(307, location=f"{self.server.address}/data{self.path.removeprefix('/webhdfs/v1')}")

    def create_data(self) -> None:
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        self.server.names[self.file] = content
        self.answer(201)

    def open(self) -> None:
        content = self.server.names.get(self.file)
        assert content is not None
        start = int(self.query["offset"])
        self.answer(200, content=content[start : start + int(self.query["length"])])


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHdfs]:
    monkeypatch.setattr(webhdfs_http, "_RETRY_PAUSES_S", (0.0, 0.0))
    server = FakeHdfs()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def storage(hdfs: FakeHdfs) -> Storage:
    return WebHdfs(namenode="hdfs://namenode:8020", root="/root", http=hdfs.address, user="tester", replication=1)


def lost(handler: Handler, _: str) -> bool:
    """The request never arrives."""
    handler.hang_up()
    return True


def done_but_lost(handler: Handler, operation: str) -> bool:
    """It is done, the answer never arrives."""
    answer = handler.answer
    handler.answer = lambda *_, **__: None  # type: ignore[method-assign]
    getattr(handler, operation.replace(" ", "_").lower())()
    handler.answer = answer  # type: ignore[method-assign]
    handler.hang_up()
    return True


def refusing(status: int, exception: str, message: str = "planted") -> Trouble:
    def trouble(handler: Handler, _: str) -> bool:
        handler.refuse(status, exception, message)
        return True

    return trouble


def test_settings_name_the_backend() -> None:
    found = open_storage(StorageSettings(root="hdfs://namenode:8020/hourmark/", webhdfs="http://namenode:9870/", user="me"))
    assert found == WebHdfs("hdfs://namenode:8020", "/hourmark", "http://namenode:9870", "me", 3)
    assert found.url("a/b c") == "hdfs://namenode:8020/hourmark/a/b c"
    assert open_storage(StorageSettings(root="hdfs://namenode:8020")).url("a") == "hdfs://namenode:8020/a"
    assert open_storage(StorageSettings(root="file:///srv/hourmark")).url("a") == "file:///srv/hourmark/a"


def test_a_lost_question_is_asked_again(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.names["/root/file"] = b"content"
    hdfs.troubles = [("GETFILESTATUS", lost), ("OPEN", lost)]
    assert storage.read("file") == b"content"
    hdfs.troubles = [("DELETE", done_but_lost), ("MKDIRS", done_but_lost)]
    storage.delete("file")
    storage.make_folder("folder")
    assert hdfs.names == {"/root": None, "/root/folder": None}


def test_questions_are_bounded(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.troubles = [("GETFILESTATUS", lost)] * 9
    with pytest.raises(StorageError, match="no answer from http://127") as caught:
        storage.size("file")
    assert hdfs.asked == ["GETFILESTATUS"] * 3
    assert "storage.webhdfs" in str(caught.value) and "hdfs://namenode:8020/root/file" in str(caught.value)


@pytest.mark.parametrize("exception", ["StandbyException", "RetriableException"])
def test_a_namenode_that_says_later_is_asked_again(hdfs: FakeHdfs, storage: Storage, exception: str) -> None:
    hdfs.troubles = [("GETFILESTATUS", refusing(403, exception))]
    assert storage.exists("")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((403, "SafeModeException", "Cannot create. Name node is in safe mode."), SafeMode),
        ((403, "RetriableException", "Name node is in safe mode."), SafeMode),
        ((403, "AccessControlException", "Permission denied: user=tester"), AccessDenied),
        ((403, "DSQuotaExceededException", "quota"), NoSpace),
        ((403, "IOException", "File could only be written to 0 of the 1 minReplication nodes."), NoSpace),
        ((403, "IOException", "Failed to find datanode, suggest to check cluster health."), NoSpace),
        ((500, "NullPointerException", ""), StorageError),
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "CREATE data", "RENAME"])
def test_what_hdfs_refuses_is_clear(
    hdfs: FakeHdfs, storage: Storage, operation: str, answer: tuple[int, str, str], error: type[StorageError]
) -> None:
    hdfs.troubles = [(operation, refusing(*answer))] * 9
    with pytest.raises(StorageError) as caught:
        storage.write_new("file", b"x" * 3_000_000)
    assert type(caught.value) is error
    assert "/root/file" not in hdfs.names
    assert not [name for name in hdfs.names if "unfinished/" in name]


def test_an_answer_without_reason_is_an_error_all_the_same(hdfs: FakeHdfs, storage: Storage) -> None:
    def trouble(handler: Handler, _: str) -> bool:
        handler.answer(418, content=b"<html>\xff")
        return True

    hdfs.troubles = [("GETFILESTATUS", trouble)]
    with pytest.raises(StorageError, match="418"):
        storage.exists("file")


def test_a_short_read_is_never_a_result(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.names["/root/file"] = b"content"

    def short(handler: Handler, _: str) -> bool:
        handler.answer(200, content=b"cont")
        return True

    hdfs.troubles = [("OPEN", short)]
    assert storage.read("file") == b"content"
    hdfs.troubles = [("OPEN", short)] * 9
    with pytest.raises(StorageError, match="4 of 7 bytes"):
        storage.read("file")


def test_an_upload_that_breaks_off_publishes_nothing(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.troubles = [("CREATE data", lost)]
    with pytest.raises(StorageError, match="broke off the upload"):
        storage.write_new("file", b"x" * 30_000_000)
    assert "/root/file" not in hdfs.names


def test_an_upload_stored_in_part_publishes_nothing(hdfs: FakeHdfs, storage: Storage) -> None:
    def stored_in_part(handler: Handler, _: str) -> bool:
        handler.create_data()
        handler.server.names[handler.file] = b"part"
        return True

    hdfs.troubles = [("CREATE data", stored_in_part)]
    with pytest.raises(StorageError, match="100 bytes were sent, 4 are stored"):
        storage.write_new("file", b"x" * 100)
    assert "/root/file" not in hdfs.names


def test_a_rename_that_never_arrived_is_asked_again(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.names["/root/source"] = None
    hdfs.troubles = [("RENAME", lost), ("RENAME", lost)]
    storage.rename_new("source", "target")
    assert "/root/target" in hdfs.names and "/root/source" not in hdfs.names


def test_a_rename_whose_answer_was_lost_is_uncertain(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.names["/root/source"] = None
    hdfs.troubles = [("RENAME", done_but_lost)]
    with pytest.raises(RenameUncertain, match="read the target"):
        storage.rename_new("source", "target")
    assert "/root/target" in hdfs.names


def test_a_lost_rename_that_somebody_else_won_already_exists(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.names |= {"/root/source": None, "/root/target": b"other"}
    hdfs.troubles = [("RENAME", lost)]
    with pytest.raises(AlreadyExists) as caught:
        storage.rename_new("source", "target")
    assert type(caught.value) is AlreadyExists
    assert hdfs.names["/root/source"] is None and hdfs.names["/root/target"] == b"other"


def test_a_lost_rename_of_what_is_gone_is_not_found(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.troubles = [("RENAME", lost)]
    with pytest.raises(NotFound):
        storage.rename_new("source", "target")


def test_renames_are_bounded_too(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.names["/root/source"] = None
    hdfs.troubles = [("RENAME", lost)] * 9
    with pytest.raises(StorageError, match="no answer"):
        storage.rename_new("source", "target")
    assert hdfs.asked.count("RENAME") == 3


def test_a_rename_answered_well_that_did_not_happen_is_an_error(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.names["/root/source"] = None

    def liar(handler: Handler, _: str) -> bool:
        handler.answer(200, {"boolean": True})
        return True

    hdfs.troubles = [("RENAME", liar)]
    with pytest.raises(StorageError, match="did not happen"):
        storage.rename_new("source", "target")


def test_a_finished_file_whose_rename_got_no_answer_is_there(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.troubles = [("RENAME", done_but_lost)]
    storage.write_new("file", b"content")
    assert hdfs.names["/root/file"] == b"content"


def test_proxies_of_the_environment_are_not_used(hdfs: FakeHdfs, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert storage.exists("")
