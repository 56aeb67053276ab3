"""Exceptions of the storage backends.

StorageError (an Unavailable)   the backend cannot be reached or refuses; a retry may succeed
├── AlreadyExists               the path exists; it was not changed
├── ContentLost                 the storage reports that the content is gone; a retry does not help
│   ├── NotFound                the path does not exist or has the wrong type (a folder for a file)
│   └── BadBlocks               the path exists, but the storage has lost part of its content
├── AccessDenied                the user lacks permission
│   └── NotAuthenticated        HDFS requires Kerberos
├── NoSpace                     disk full, or too few DataNodes with free space
│   └── QuotaExceeded           a quota of HDFS on a folder is reached
└── SafeMode                    HDFS is temporarily read-only
"""

from __future__ import annotations

from hourmark.errors import Unavailable


class StorageError(Unavailable):
    """Raised if a storage operation on a path fails.

    Instances can be pickled, so an error in a Spark worker reaches the driver unchanged.

    Attributes:
        path: Path relative to the storage root.
        url: Complete URL of the path.
        what: Human-readable reason.
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
    """Raised if the path to create already exists.

    The operation has not changed anything.
    """

    next_step = "the existing file or folder was not changed; read it, or use another name"


class ContentLost(StorageError):
    """Raised if the storage reports that a path does not exist or has lost content.

    Retrying the operation does not help. A server error without an explanation never raises this
    exception.
    """


class NotFound(ContentLost):
    """Raised if a path does not exist, or is a folder although the operation requires a file."""

    next_step = "check the path and storage.root"


class AccessDenied(StorageError):
    """Raised if the storage user does not have permission for an operation.

    An administrator must grant the permission; retrying does not help.
    """

    next_step = "check storage.user or storage.principal, and the folder's owner and permissions"


class NotAuthenticated(AccessDenied):
    """Raised if a server requires authentication and the request had none."""

    next_step = (
        "check that the address in storage.webhdfs is a NameNode; if HDFS requires Kerberos, set "
        "storage.principal and storage.keytab"
    )


class ObjectAccessDenied(AccessDenied):
    """Raised if an object store has no valid credentials of the client, or denies the request."""

    next_step = (
        "check the credentials in the environment or the role of the instance, and the policy of "
        "the bucket"
    )


class NoSpace(StorageError):
    """Raised if a write fails because the storage is full.

    The disk is full, a quota is reached, or too few DataNodes have free space.
    """

    next_step = (
        "check that the DataNodes are alive and have space (hdfs dfsadmin -report), or raise the "
        "quota; nothing was published"
    )


class QuotaExceeded(NoSpace):
    """Raised if a write would exceed a quota of HDFS on a folder.

    The quota limits the number of names (files and folders) or the space of all replicas. The
    message names the folder, its quota and its use.
    """

    next_step = (
        "raise the folder's quota (hdfs dfsadmin -setQuota, -setSpaceQuota) or delete files below "
        "it, then try again; nothing was published"
    )


class SafeMode(StorageError):
    """Raised if a write is refused because HDFS is in safe mode.

    Safe mode is usually temporary. Retry the operation later.
    """

    next_step = (
        "wait until the NameNode leaves safe mode, or end it (hdfs dfsadmin -safemode leave), then "
        "try again"
    )


class BadBlocks(ContentLost):
    """Raised if an HDFS file has lost content.

    A block of the file has no replica, or has only corrupt replicas.
    """

    next_step = "run hdfs fsck (or read the disk's log), and restore the file from a copy"
