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
    """A storage operation on one path that failed.

    Instances can be pickled, so an error in a Spark worker reaches the driver unchanged.

    Attributes:
        path: Path relative to the storage root.
        url: Full URL of the path.
        what: Readable reason.
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
    """Raised if a path exists that an operation would create; the operation has changed nothing."""

    next_step = "the existing file or folder is unchanged: read it, or use another name"


class ContentLost(StorageError):
    """Raised if the storage reports that a path does not exist or has lost content.

    Repeating the operation does not help. A server error without an explanation is never reported
    as this class.
    """


class NotFound(ContentLost):
    """Raised if a path does not exist, or is a folder where a file is required."""

    next_step = "check the path and storage.root"


class AccessDenied(StorageError):
    """Raised if the storage user has no permission for an operation."""

    next_step = "check storage.user and the folder's owner and permissions"


class NoSpace(StorageError):
    """Raised if the disk is full, a quota is reached, or too few DataNodes have free space."""

    next_step = (
        "check that the DataNodes are alive and have space (hdfs dfsadmin -report), or raise the "
        "quota; nothing was published"
    )


class SafeMode(StorageError):
    """Raised if a write is refused because HDFS is in safe mode, which is normally temporary."""

    next_step = (
        "wait until the NameNode leaves safe mode (hdfs dfsadmin -safemode get), then try again"
    )


class BadBlocks(ContentLost):
    """Raised if a file has lost content: a block has no replica, or only corrupt ones."""

    next_step = "run hdfs fsck (or read the disk's log), and restore the file from a copy"
