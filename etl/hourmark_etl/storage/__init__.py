"""Storage of staged files and closed buckets, behind one interface, `Storage`.

Backends are the local disk, HDFS and object stores. Publishing a bucket depends on one atomic
operation that fails if the target exists: `FolderStorage.rename_new` moves a folder, and
`ObjectStorage.write_new` creates an object. All implementations pass the same test suite,
tests/integration/test_storage_contract.py.

| module            | content                                                        |
|-------------------|----------------------------------------------------------------|
| `interface`       | the protocols and the guarantees of each method                |
| `errors`          | the exception hierarchy                                        |
| `paths`           | validation of paths                                            |
| `local_disk`      | the backend for `file:///…`                                    |
| `webhdfs`         | the backend for `hdfs://…`, over WebHDFS                       |
| `tls`             | TLS contexts for connections to NameNodes and DataNodes        |
| `active_namenode` | the NameNode to try first                                      |
| `namenode`        | what NameNodes report about themselves                         |
| `webhdfs_http`    | WebHDFS requests, retries and failover                         |
| `webhdfs_files`   | streaming uploads and downloads                                |
| `object_storage`  | the backend for object stores                                  |
| `object_client`   | the requests to an object store, as a port                     |
| `obstore_client`  | the client for S3                                              |
| `race_probe`      | verifies that conditional puts have one winner                 |
| `kerberos`        | delegation tokens: login, renewal, transfer to executors       |
| `spnego`          | Negotiate headers from a keytab or ticket cache                |
"""

from __future__ import annotations

import getpass
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from hourmark.config.groups import StorageSettings
from hourmark.errors import UsageError
from hourmark.process.certificates import load_ca_certificates
from hourmark_etl.storage.errors import (
    AccessDenied,
    AlreadyExists,
    BadBlocks,
    ContentLost,
    NoSpace,
    NotAuthenticated,
    NotFound,
    QuotaExceeded,
    SafeMode,
    StorageError,
)
from hourmark_etl.storage.interface import (
    FolderStorage,
    Storage,
    StorageEntry,
    delete_all,
    list_if_exists,
    map_concurrently,
)
from hourmark_etl.storage.kerberos import (
    KerberosLogin,
    LoginFailed,
    ReceivedToken,
    kerberos_login,
)
from hourmark_etl.storage.local_disk import LocalDisk
from hourmark_etl.storage.object_storage import ObjectStorage
from hourmark_etl.storage.spnego import check_login
from hourmark_etl.storage.webhdfs import WebHdfs
from hourmark_etl.storage.webhdfs_http import WebHdfsTarget

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BadBlocks",
    "ContentLost",
    "FolderStorage",
    "LocalDisk",
    "LoginFailed",
    "NoSpace",
    "NotAuthenticated",
    "NotFound",
    "ObjectStorage",
    "QuotaExceeded",
    "SafeMode",
    "Storage",
    "StorageEntry",
    "StorageError",
    "WebHdfs",
    "delete_all",
    "list_if_exists",
    "map_concurrently",
    "open_storage",
]


def open_storage(
    settings: StorageSettings,
    *,
    is_start: bool = True,
    of_driver: Storage | None = None,
    answer_seconds: int = 60,
) -> Storage:
    """Create the storage backend for the given settings, without connecting to the storage.

    Args:
        settings: The `storage` settings. `root` is a URL `file:///…`, `hdfs://…/path` or
            `s3://bucket/path`.
        is_start: Whether to check the files that the settings name. A driver that is running does
            not, because an operator may be replacing them; requests then fail until they are back.
        of_driver: Storage of the driver that started this process, unpickled. Its delegation token
            is used until this process has its own.
        answer_seconds: Limit of each try of a request to an object store, and the time after which
            it is not repeated any more, in seconds. Other storages have their own limits.

    Returns:
        A `LocalDisk`, `WebHdfs` or `ObjectStorage`, depending on the scheme of the URL.

    Raises:
        ConfigError: The CA certificates in `settings.ca` or the keytab cannot be loaded, or the
            Kerberos library is missing.
        UsageError: The packages for this kind of storage are not installed.
    """
    if settings.root.startswith("file://"):
        return LocalDisk(root=Path(settings.root.removeprefix("file://") or "/"))
    if is_start:
        _check_files(settings)
    root = urlsplit(settings.root)
    if root.scheme == "s3":
        return _open_s3(root.netloc, root.path.strip("/"), settings, answer_seconds)
    user, filesystem = settings.user or getpass.getuser(), f"hdfs://{root.netloc}"
    login = _login(settings, filesystem, user)
    if login and isinstance(of_driver, WebHdfs) and isinstance(of_driver.kerberos, ReceivedToken):
        login.adopt(of_driver.kerberos)
    return WebHdfs(
        filesystem=filesystem,
        root=root.path,
        namenodes=settings.namenodes,
        ca=settings.ca,
        user=user,
        kerberos=login,
        replication=settings.replication,
    )


def _open_s3(
    bucket: str, prefix: str, settings: StorageSettings, answer_seconds: int
) -> ObjectStorage:
    try:
        from hourmark_etl.storage.obstore_client import S3Client  # optional, 16 MB
    except ImportError as error:
        raise UsageError(
            f"storage.root is {settings.root}, but obstore is not installed ({error}); install it "
            "with: pip install 'hourmark-etl[s3]'"
        ) from error
    return ObjectStorage(
        S3Client(
            bucket=bucket,
            prefix=prefix,
            endpoint=settings.s3_endpoint.rstrip("/"),
            region=settings.s3_region,
            answer_seconds=answer_seconds,
        )
    )


def _check_files(settings: StorageSettings) -> None:
    if settings.ca is not None:
        load_ca_certificates(ssl.create_default_context(), "storage.ca", settings.ca)
    if settings.principal:
        check_login(settings.principal, settings.keytab)


def _login(settings: StorageSettings, filesystem: str, user: str) -> KerberosLogin | None:
    if not settings.principal:
        return None
    root = WebHdfsTarget(
        namenodes=settings.namenodes,
        ca=settings.ca,
        file="/",
        user=user,
        path="",
        url=filesystem,
    )
    return kerberos_login(root, settings.principal, settings.keytab)
