"""What storage refuses, and what it could not do.

StorageError (an Unavailable)   the backend cannot be reached or refuses; trying again may help
├── AlreadyExists               something stands at the path; it was not touched
│   └── RenameUncertain         the answer of a rename was lost and the target stands: read it to learn whose it is
├── NotFound                    nothing stands there, or not what was asked for (a folder for a file)
├── AccessDenied                the user may not
├── NoSpace                     disk full, quota reached, or too few datanodes with room
└── SafeMode                    HDFS is read-only for now
"""

from __future__ import annotations

from hourmark.errors import Unavailable


class StorageError(Unavailable):
    """Carries the path (below the root) and the full URL. Pickles, so that a Spark worker's error arrives whole."""

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


class RenameUncertain(AlreadyExists):
    """The answer of a rename was lost, the source is gone and the target stands: ours most likely, but not surely."""

    next_step = "read the target: its content says whose it is"


class NotFound(StorageError):
    """Nothing stands there, or not what was asked for."""

    next_step = "check the path and storage.root"


class AccessDenied(StorageError):
    """The user may not do this."""

    next_step = "check storage.user and the folder's owner and permissions"


class NoSpace(StorageError):
    """Disk full, quota reached, or too few datanodes with room."""

    next_step = "free space or raise the quota; nothing was published"


class SafeMode(StorageError):
    """HDFS is read-only for now."""

    next_step = "wait until the NameNode leaves safe mode (hdfs dfsadmin -safemode get), then try again"


def is_of_the_path(error: StorageError) -> bool:
    """Whether the storage is there and answers, but what stands at the path is gone or cannot be read, as a lost block: waiting
    does not mend it."""
    return isinstance(error, NotFound) or type(error) is StorageError
