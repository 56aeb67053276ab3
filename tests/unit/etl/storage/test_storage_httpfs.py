"""Reading through HttpFS, which sends content without a redirect.

tests/faults/test_hdfs_httpfs.py has a real HttpFS.
"""

from __future__ import annotations

import pytest
from tests.support.fake_hdfs import FakeHdfs, Handler

from hourmark_etl.storage import StorageError, WebHdfs
from hourmark_etl.storage.webhdfs_files import WINDOW_BYTES

CONTENT = bytes(range(256)) * (WINDOW_BYTES // 256) + b"the next window"


@pytest.fixture
def gateway(hdfs: FakeHdfs, storage: WebHdfs) -> WebHdfs:
    storage.write_new("folder/file", CONTENT)
    hdfs.is_gateway = True
    hdfs.asked.clear()
    return storage


def test_folders_and_files_are_read(gateway: WebHdfs) -> None:
    assert [(e.name, e.size) for e in gateway.list("folder")] == [("file", len(CONTENT))]
    assert gateway.read("folder/file") == CONTENT
    with gateway.open("folder/file") as file:
        file.seek(300)
        assert file.read(10) == CONTENT[300:310]
    assert not gateway.exists("other")


def test_a_page_instead_of_content_is_not_read(hdfs: FakeHdfs, gateway: WebHdfs) -> None:
    def page(handler: Handler, _: str) -> bool:
        handler.answer(200, content=b"x" * WINDOW_BYTES, kind="text/html")
        return True

    hdfs.troubles += [("OPEN", page)] * 3
    with pytest.raises(StorageError, match="content type text/html"):
        gateway.read("folder/file")


def test_content_that_is_too_short_is_requested_again(hdfs: FakeHdfs, gateway: WebHdfs) -> None:
    def short(handler: Handler, _: str) -> bool:
        handler.answer(200, content=b"x", kind="application/octet-stream")
        return True

    hdfs.troubles.append(("OPEN", short))
    assert gateway.read("folder/file") == CONTENT


def test_nothing_is_written(hdfs: FakeHdfs, gateway: WebHdfs) -> None:
    for unpublished in (False, True):
        with pytest.raises(StorageError, match=r"a gateway.*storage\.webhdfs"):
            gateway.write_new("new", b"content", unpublished=unpublished)
    assert "RENAME" not in hdfs.asked and "CREATE data" not in hdfs.asked
    assert not gateway.exists("new")


def test_nothing_is_published_without_file_ids(hdfs: FakeHdfs, gateway: WebHdfs) -> None:
    hdfs.has_file_ids = False
    with pytest.raises(StorageError, match=r"no file ids.*storage\.webhdfs"):
        gateway.rename_new("folder", "moved")
    assert "RENAME" not in hdfs.asked
