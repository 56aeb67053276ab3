"""Where staged files and buckets live: one interface, `Storage`, over local disk and HDFS (object
stores will join).

What closing rests on is one method, `rename_new`: it publishes a folder at once and refuses where
anything stands already. Every implementation passes the same suite,
tests/integration/test_storage_contract.py.

| module       | what it holds                                                     |
|--------------|-------------------------------------------------------------------|
| `interface`  | the protocol and what each method promises                        |
| `errors`     | the tree of errors                                                |
| `paths`      | which paths are allowed                                           |
| `local_disk` | `file:///…`                                                       |
| `webhdfs`    | `hdfs://…`, over WebHDFS; `webhdfs_http` asks, `webhdfs_files` streams |
"""

from __future__ import annotations

import getpass
from pathlib import Path
from urllib.parse import urlsplit

from hourmark.config.groups import StorageSettings
from hourmark_etl.storage.errors import (
    AccessDenied,
    AlreadyExists,
    BadBlocks,
    Lost,
    NoSpace,
    NotFound,
    SafeMode,
    StorageError,
)
from hourmark_etl.storage.interface import Entry, Storage, at_once, delete_all, entries_of
from hourmark_etl.storage.local_disk import LocalDisk
from hourmark_etl.storage.webhdfs import WebHdfs

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BadBlocks",
    "Entry",
    "LocalDisk",
    "Lost",
    "NoSpace",
    "NotFound",
    "SafeMode",
    "Storage",
    "StorageError",
    "WebHdfs",
    "at_once",
    "delete_all",
    "entries_of",
    "open_storage",
]


def open_storage(settings: StorageSettings) -> Storage:
    """The storage that `storage.root` names. Nothing is asked of a server yet."""
    if settings.root.startswith("file://"):
        return LocalDisk(root=Path(settings.root.removeprefix("file://") or "/"))
    root = urlsplit(settings.root)
    return WebHdfs(
        namenode=f"hdfs://{root.netloc}",
        root=root.path,
        http=settings.webhdfs.rstrip("/"),
        user=settings.user or getpass.getuser(),
        replication=settings.replication,
    )
