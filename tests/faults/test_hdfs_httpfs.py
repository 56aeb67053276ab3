"""Reading through a real HttpFS, and what it cannot do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.faults.outcome import LONG
from tests.support.ha_hdfs import HaHdfs
from tests.support.httpfs import httpfs

from hourmark_etl.storage import NotFound, Storage, StorageError, open_storage
from hourmark_etl.storage.webhdfs_files import WINDOW_BYTES

pytestmark = LONG
CONTENT = bytes(range(256)) * (WINDOW_BYTES // 256) + b"the next window"
NAMES = ("date=2026-11-21", "with space", "ünïcödé-日本", "100%", "a+b", "q?x=1&y=2")


@pytest.fixture(scope="module")
def gateway(name_service: HaHdfs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    """Of folders that were written through a NameNode."""
    written = open_storage(name_service.settings)
    for name in NAMES:
        written.write_new(f"folder/{name}/file", b"content")
    written.write_new("folder/large", CONTENT)
    with httpfs(name_service, tmp_path_factory.mktemp("httpfs")) as settings:
        yield open_storage(settings)


def test_folders_and_files_are_read(gateway: Storage) -> None:
    assert sorted(entry.name for entry in gateway.list("folder")) == sorted((*NAMES, "large"))
    for name in NAMES:
        assert gateway.read(f"folder/{name}/file") == b"content"
    assert gateway.size("folder/large") == len(CONTENT)
    assert gateway.read("folder/large") == CONTENT
    with gateway.open("folder/large") as file:
        file.seek(WINDOW_BYTES - 10)
        assert file.read(20) == CONTENT[WINDOW_BYTES - 10 : WINDOW_BYTES + 10]


def test_what_is_not_there_is_not_found(gateway: Storage) -> None:
    assert not gateway.exists("folder/other")
    with pytest.raises(NotFound):
        gateway.read("folder/other")
    with pytest.raises(NotFound, match="is a folder"):
        gateway.size("folder")
    with pytest.raises(NotFound):
        gateway.list("folder/large")


@pytest.mark.parametrize("unpublished", [False, True])
def test_nothing_is_written(gateway: Storage, name_service: HaHdfs, unpublished: bool) -> None:
    with pytest.raises(StorageError, match=r"a gateway.*storage\.webhdfs"):
        gateway.write_new("folder/new", b"content", unpublished=unpublished)
    assert not open_storage(name_service.settings).exists("folder/new")
