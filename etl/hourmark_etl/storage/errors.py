"""Exceptions of the storage backends.

StorageError (an Unavailable)   the backend cannot be reached or refuses; a retry may succeed
├── AlreadyExists               the path exists; it was not changed
├── ContentLost                 the storage reports that the content is gone; a retry does not help
│   ├── NotFound                the path does not exist or has the wrong type (a folder for a file)
│   └── BadBlocks               the path exists, but the storage has lost part of its content
├── AccessDenied                the user lacks permission
├── NoSpace                     disk full, quota reached, or too few DataNodes with free space
└── SafeMode                    HDFS is temporarily read-only
"""

from __future__ import annotations

from hourmark.errors import Unavailable


class StorageError(Unavailable):
    """A failed storage operation on one path.

    Instances can be pickled, so an error raised in a Spark worker reaches the driver unchanged.

    Attributes:
        path: Path relative to the storage root.
        url: Full URL of the path.
        what: Reason, human-readable.
    """

    next_step = "check the storage's log, then try again"

    def __init__(self, path: str, url: str, what: str) -> None:
        super().__init__(path, url, what)
        self.path = path
        self.url = url
        self.what = what

    def __str__(self) -> str:
        return f"{self.path or '/'} ({self.url}): {self.what}; {self.next_step}"


class AlreadyExists(StorageError):
    """The error for a path that already exists; the operation did not change it."""

    next_step = "the existing file or folder is unchanged: read it, or use another name"


class ContentLost(StorageError):
    """The error for a path that is gone, or has lost content, according to the storage.

    Waiting does not help. A server error without an explanation is not reported as this class.
    """


class NotFound(ContentLost):
    """The error for a path that does not exist, or has the wrong type (a folder for a file)."""

    next_step = "check the path and storage.root"


class AccessDenied(StorageError):
    """The error for an operation that the storage user has no permission for."""

    next_step = "check storage.user and the folder's owner and permissions"


class NoSpace(StorageError):
    """The error for a full disk, a reached quota, or too few DataNodes with free space."""

    next_step = (
        "check that the DataNodes are alive and have space (hdfs dfsadmin -report), or raise the "
        "quota; nothing was published"
    )


class SafeMode(StorageError):
    """The error for a write while HDFS is in safe mode, and therefore temporarily read-only."""

    next_step = (
        "wait until the NameNode leaves safe mode (hdfs dfsadmin -safemode get), then try again"
    )


class BadBlocks(ContentLost):
    """The error for a file that has lost content: no replica of a block, or only corrupt ones."""

    next_step = "run hdfs fsck (or read the disk's log), and restore the file from a copy"
