"""What storage refuses, and what it could not do.

StorageError (an Unavailable)   the backend cannot be reached or refuses; trying again may help
├── AlreadyExists               something stands at the path; it was not touched
├── Lost                        the storage's own word that what stands at the path is gone, or lost: waiting does not mend it
│   ├── NotFound                nothing stands there, or not what was asked for (a folder for a file)
│   └── BadBlocks               it stands, but the storage has lost content of it
├── AccessDenied                the user may not
├── NoSpace                     disk full, quota reached, or too few datanodes with room
└── SafeMode                    HDFS is read-only for now
"""

from __future__ import annotations

from hourmark.errors import Unavailable


class StorageError(Unavailable):
    """Carries the path (below the root) and the full URL.

    Pickles, so that a Spark worker's error arrives whole.
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
    """Something stands at the path; it was not touched."""

    next_step = "what stands there is kept: read it, or take another name"


class Lost(StorageError):
    """It is gone, or content of it is, by the storage's own word: waiting does not mend it.

    What a server does not explain is its own trouble.
    """


class NotFound(Lost):
    """Nothing stands there, or not what was asked for."""

    next_step = "check the path and storage.root"


class AccessDenied(StorageError):
    """The user may not do this."""

    next_step = "check storage.user and the folder's owner and permissions"


class NoSpace(StorageError):
    """Disk full, quota reached, or too few datanodes with room."""

    next_step = (
        "see that the DataNodes are live and have room (hdfs dfsadmin -report), or raise the "
        "quota; nothing was published"
    )


class SafeMode(StorageError):
    """HDFS is read-only for now."""

    next_step = (
        "wait until the NameNode leaves safe mode (hdfs dfsadmin -safemode get), then try again"
    )


class BadBlocks(Lost):
    """It stands, and the storage itself says that content of it is lost: no replica, or none that
    is whole.
    """

    next_step = "see hdfs fsck (or the disk's log), and bring the file back from a copy"
