"""Every WebHDFS operation against every odd answer, once and for ever: success exactly if it
happened, or an error of ours.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable

import pytest
from tests.support.fake_hdfs import FakeHdfs, Handler, Trouble, do, done_but_lost, lost

from hourmark.errors import Unavailable
from hourmark_etl.execution.task_failures import TaskFailure
from hourmark_etl.storage import (
    AlreadyExists,
    BadBlocks,
    ContentLost,
    NotFound,
    Storage,
    StorageEntry,
    StorageError,
    WebHdfs,
    webhdfs_http,
)

pytestmark = pytest.mark.slow

FOLDER = "/root/folder"
HTML = b"<html>please log in</html>"


@dataclasses.dataclass(frozen=True)
class Case:
    """What is done while `operation` is answered oddly, what it returns, and whether it
    happened.
    """

    operation: str
    act: Callable[[Storage], object]
    result: object
    happened: Callable[[FakeHdfs], bool]


def published(hdfs: FakeHdfs) -> bool:
    return "/root/new/target" in hdfs.names and FOLDER not in hdfs.names


def written(hdfs: FakeHdfs) -> bool:
    return hdfs.names.get("/root/new/file") == b"content"


def always(_: FakeHdfs) -> bool:
    return True


CASES = [
    Case("RENAME", lambda s: s.rename_new("folder", "new/target"), None, published),
    *(
        Case(o, lambda s: s.write_new("new/file", b"content"), None, written)
        for o in ("CREATE", "CREATE data", "RENAME")
    ),
    Case("MKDIRS", lambda s: s.make_folder("made"), None, lambda h: "/root/made" in h.names),
    Case("DELETE", lambda s: s.delete("file"), None, lambda h: "/root/file" not in h.names),
    Case("GETFILESTATUS", lambda s: s.exists("file"), True, always),
    Case("GETFILESTATUS", lambda s: s.size("file"), 7, always),
    Case("GETFILESTATUS", lambda s: s.write_new("new/file", b"content"), None, written),
    Case("GETFILESTATUS", lambda s: s.rename_new("folder", "new/target"), None, published),
    Case(
        "LISTSTATUS",
        lambda s: s.list(""),
        [StorageEntry("file", 7, False), StorageEntry("folder", 0, True)],
        always,
    ),
    *(Case(o, lambda s: s.read("file"), b"content", always) for o in ("OPEN", "OPEN data")),
]


def saying(status: int, content: bytes = HTML, *, done: bool = False, **more: str) -> Trouble:
    def trouble(handler: Handler, operation: str) -> bool:
        if done:
            do(handler, operation)
        handler.answer(status, content=content, **{"kind": "text/html", **more})
        handler.close_connection = True  # an upload may not have been read
        return True

    return trouble


def late(handler: Handler, operation: str) -> bool:
    """The connection is lost, and the server does it all the same, later."""
    if operation.endswith(" data"):  # its content is on the connection
        return lost(handler, operation)
    handler.server.late.append(lambda: do(handler, operation))
    return lost(handler, operation)


def silent(handler: Handler, _: str) -> bool:
    """Nothing comes."""
    handler.server.over.wait(20)
    handler.close_connection = True
    return True


def cut_off(handler: Handler, operation: str) -> bool:
    """Half of the answer, which says that it is whole."""
    answer = handler.answer

    def half(status: int, value: object = None, **more: object) -> None:
        content = more.pop("content", None)
        body = (
            content
            if isinstance(content, bytes)
            else b""
            if value is None
            else json.dumps(value).encode()
        )
        # as it came
        answer(status, content=body[: len(body) // 2], **more)  # type: ignore[arg-type]

    handler.answer = half  # type: ignore[method-assign]  # for this one answer
    getattr(handler, operation.replace(" ", "_").lower())()
    handler.answer = answer  # type: ignore[method-assign]  # as it was
    return True


def broken_off(handler: Handler, operation: str) -> bool:
    """Less than Content-Length says."""
    do(handler, operation)
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"boolean": true}')
    handler.close_connection = True
    return True


ODD: dict[str, Trouble] = {
    "lost before": lost,
    "lost after": done_but_lost,
    "late": late,
    "silent": silent,
    "500 after": saying(500, done=True),
    "500 before": saying(500),
    "503 before": saying(503),
    "302 without location": saying(302),
    "302 to a login": saying(302, location="http://127.0.0.1:1/login"),
    "307 to a dead DataNode": saying(
        307, b"", location="http://127.0.0.1:9/webhdfs/v1/root?op=CREATE"
    ),
    "307 without location": saying(307, b""),
    "307 to no host": saying(307, b"", location="/login"),
    "307 to no port": saying(307, b"", location="http://127.0.0.1:none/"),
    "HTML with 200": saying(200),
    "HTML with 201": saying(201),
    "HTML of the right length": saying(200, b"<html/>"),
    "HTML with 404": saying(404),
    "nothing with 204": saying(204, b""),
    "JSON cut off": cut_off,
    "body broken off": broken_off,
    "JSON of another shape": saying(
        200, b'{"FileStatus": [], "FileStatuses": {"FileStatus": {}}, "boolean": "yes"}'
    ),
    "JSON too deep": saying(200, b"[" * 100_000),
    "a list": saying(200, b"[]"),
    "a refusal of another shape": saying(403, b'{"RemoteException": {"exception": null}}'),
}


@pytest.fixture(autouse=True)
def soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "silent" in request.node.name:
        monkeypatch.setattr(webhdfs_http, "TIMEOUT_S", (1.0, 0.2))


@pytest.mark.parametrize("times", [1, 99], ids=["once", "for ever"])
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.operation)
def test_success_exactly_if_it_happened(
    hdfs: FakeHdfs, storage: Storage, case: Case, odd: str, times: int
) -> None:
    hdfs.names |= {FOLDER: None, "/root/file": b"content"}
    hdfs.troubles = [(case.operation, ODD[odd])] * times
    try:
        result = case.act(storage)
    except StorageError as error:
        assert not isinstance(error, AlreadyExists | NotFound), (
            "nothing stood at the target, and the source did"
        )
        assert not isinstance(error, ContentLost), "the server's trouble is no damage"
        done = case.happened(hdfs)
        assert not done or case.result is not None or case.operation in ("MKDIRS", "DELETE"), (
            "it happened, and is no success"
        )
    else:
        assert case.happened(hdfs)
        assert result == case.result


@pytest.mark.parametrize("times", [1, 99], ids=["once", "for ever"])
@pytest.mark.parametrize("odd", ODD)
def test_what_stood_before_stays_and_is_never_ours(
    hdfs: FakeHdfs, storage: Storage, odd: str, times: int
) -> None:
    hdfs.names |= {FOLDER: None, "/root/new/target": b"other"}
    hdfs.troubles = [("RENAME", ODD[odd])] * times
    with pytest.raises(AlreadyExists):
        storage.rename_new("folder", "new/target")
    assert hdfs.names[FOLDER] is None and hdfs.names["/root/new/target"] == b"other"


def test_where_a_datanode_is_down_another_is_asked_for(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.names["/root/file"] = b"content"

    def down(handler: Handler, _: str) -> bool:
        if "excludedatanodes" in handler.query:
            return False
        handler.answer(307, location="http://127.0.0.1:9/webhdfs/v1/root/file?op=OPEN")
        return True

    hdfs.troubles = [("OPEN", down), ("CREATE", down)] * 2
    assert storage.read("file") == b"content"
    storage.write_new("new", b"content")
    assert hdfs.names["/root/new"] == b"content"


def test_a_dead_datanode_restarts_the_staging_query(hdfs: FakeHdfs, storage: Storage) -> None:
    hdfs.troubles = [("CREATE", ODD["307 to a dead DataNode"])] * 99
    with pytest.raises(StorageError, match="ConnectionRefusedError") as caught:
        storage.write_new("new", b"content")
    again = pickle.loads(pickle.dumps(TaskFailure.from_error(caught.value))).error
    assert type(again) is type(caught.value) and isinstance(again, Unavailable)
    assert (vars(again), str(again)) == (vars(caught.value), str(caught.value))


def check_blocks(handler: Handler, _: str) -> bool:
    handler.refuse(403, "IOException", "No active and not excluded nodes contain this block")
    return True


def no_hosts(handler: Handler, _: str) -> bool:
    handler.answer(200, {"BlockLocations": {"BlockLocation": [{"corrupt": False, "hosts": []}]}})
    return True


def test_a_file_without_any_replica_is_lost_by_the_namenodes_own_word(
    hdfs: FakeHdfs, storage: Storage
) -> None:
    hdfs.names["/root/file"] = b"content"
    hdfs.troubles = [("OPEN", check_blocks), ("GETFILEBLOCKLOCATIONS", no_hosts)]
    with pytest.raises(BadBlocks) as caught:
        storage.read("file")
    assert isinstance(caught.value, ContentLost)


def test_a_file_whose_replicas_are_all_corrupt_is_lost(hdfs: FakeHdfs, storage: Storage) -> None:
    """A DataNode breaks off where a checksum fails, and tells the NameNode."""
    hdfs.names["/root/file"] = b"content"
    hdfs.troubles = [("OPEN data", broken_off)] * 9
    hdfs.corrupt.add("/root/file")
    with pytest.raises(BadBlocks):
        storage.read("file")


def test_no_file_is_lost_while_no_datanode_lives(hdfs: FakeHdfs, storage: Storage) -> None:
    """The NameNode says the same of every file then."""
    hdfs.names["/root/file"] = b"content"
    hdfs.lives = False
    with pytest.raises(StorageError) as caught:
        storage.read("file")
    assert not isinstance(caught.value, ContentLost)


@pytest.mark.parametrize("pauses", [2, 3])
def test_no_file_is_lost_whose_only_datanode_was_excluded(
    hdfs: FakeHdfs, storage: WebHdfs, pauses: int
) -> None:
    """Asked for another than the one that is down, the NameNode says that no other holds the block;
    whichever try is the last.
    """
    storage = dataclasses.replace(storage, retry_pauses_s=(0.0,) * pauses)
    hdfs.names["/root/file"] = b"content"

    def down(handler: Handler, operation: str) -> bool:
        if "excludedatanodes" in handler.query:
            return check_blocks(handler, operation)
        handler.answer(307, location="http://127.0.0.1:9/webhdfs/v1/root/file?op=OPEN")
        return True

    hdfs.troubles = [("OPEN", down)] * 99
    with pytest.raises(StorageError) as caught:
        storage.read("file")
    assert not isinstance(caught.value, ContentLost)
