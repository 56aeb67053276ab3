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

    next_step = "look at the storage's own log, then try again"

    def __init__(self, path: str, url: str, what: str) -> None:
        super().__init__(path, url, what)
        self.path = path
        self.url = url
        self.what = what

    def __str__(self) -> str:
        return f"{self.path or '/'} ({self.url}): {self.what}; {self.next_step}"


class AlreadyExists(StorageError):
    """The path already exists; the operation did not change it."""

    next_step = "what stands there is kept: read it, or take another name"


class ContentLost(StorageError):
    """The storage reports that the path, or part of its content, is gone; waiting does not help.

    A server error without an explanation is not reported as this class.
    """


class NotFound(ContentLost):
    """The path does not exist or has the wrong type, such as a folder in place of a file."""

    next_step = "check the path and storage.root"


class AccessDenied(StorageError):
    """The storage user lacks permission for the operation."""

    next_step = "check storage.user and the folder's owner and permissions"


class NoSpace(StorageError):
    """No space left: the disk is full, a quota is reached, or too few DataNodes have free space."""

    next_step = (
        "see that the DataNodes are live and have room (hdfs dfsadmin -report), or raise the "
        "quota; nothing was published"
    )


class SafeMode(StorageError):
    """HDFS is in safe mode, and therefore temporarily read-only."""

    next_step = (
        "wait until the NameNode leaves safe mode (hdfs dfsadmin -safemode get), then try again"
    )


class BadBlocks(ContentLost):
    """The path exists, but the storage reports lost content: no replica, or only corrupt ones."""

    next_step = "see hdfs fsck (or the disk's log), and bring the file back from a copy"
