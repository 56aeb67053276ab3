"""Clients of object stores based on obstore, the Python binding of Rust's `object_store`.

obstore does not work in a process that was forked after its first request: every request there
blocks forever. The client therefore remembers the process of the first request, and raises an error
in a forked one. Importing this module and creating a client starts no thread, so Spark's workers,
which are forked from a daemon that sends no requests, can use it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore, S3Store

from hourmark_etl.storage.errors import NotFound, ObjectAccessDenied, StorageError
from hourmark_etl.storage.interface import StorageEntry
from hourmark_etl.storage.object_client import (
    ObjectClient,
    ObjectListing,
    ObjectStatus,
    ObjectWriter,
)

WRITE_ID: Final = "hourmark-write"  # name in the metadata of objects
_CAUSE_MAX: Final = 500
_MISSING: Final = (FileNotFoundError, NotFoundError)  # obstore raises the first one
_DENIED: Final = (PermissionError, PermissionDeniedError, UnauthenticatedError)
_PART_BYTES: Final = 8 << 20
_RETRIES: Final = 4
_CONNECT_SECONDS_MAX: Final = 10


class ObstoreClient(ObjectClient):
    """Client of any store that obstore supports. Subclasses create the store."""

    __slots__ = ()

    @abstractmethod
    def open_store(self) -> ObjectStore:
        """Return the store of this process. Every call returns the same one."""

    def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
        with self._errors(key):
            try:
                obstore.put(
                    self._store(),
                    key,
                    content,
                    attributes={WRITE_ID: write_id},
                    mode="create",
                    use_multipart=False,
                )
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def begin_upload(self, key: str) -> ObjectWriter:
        with self._errors(key):
            file = obstore.open_writer(self._store(), key, buffer_size=_PART_BYTES)
        return _ObstoreUpload(self, key, file)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        with self._errors(key):
            return bytes(obstore.get_range(self._store(), key, start=start, length=length))

    def find_object(self, key: str) -> ObjectStatus | None:
        with self._errors(key):
            try:
                found = obstore.get(self._store(), key, options={"head": True})
            except _MISSING:
                return None
            return ObjectStatus(found.meta["size"], found.attributes.get(WRITE_ID, ""))

    def list_level(self, prefix: str) -> ObjectListing:
        with self._errors(prefix):
            found = obstore.list_with_delimiter(self._store(), prefix)
        return ObjectListing(
            [p.rstrip("/").rpartition("/")[2] for p in found["common_prefixes"]],
            [
                StorageEntry(
                    o["path"].rpartition("/")[2],
                    o["size"],
                    False,
                    round(o["last_modified"].timestamp() * 1000),
                )
                for o in found["objects"]
            ],
        )

    def list_all(self, prefix: str) -> list[str]:
        with self._errors(prefix):
            return [o["path"] for o in obstore.list(self._store(), prefix).collect()]

    def copy(self, source: str, target: str) -> None:
        with self._errors(source):
            obstore.copy(self._store(), source, target)

    def delete(self, keys: Sequence[str]) -> None:
        with self._errors(keys[0] if keys else ""):
            obstore.delete(self._store(), list(keys))

    def _store(self) -> ObjectStore:
        _check_not_forked(self)
        return self.open_store()

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except _MISSING as error:
            raise NotFound(key, self.url(key), "there is no such object") from error
        except _DENIED as error:
            raise ObjectAccessDenied(key, self.url(key), _describe(error)) from error
        except (BaseError, OSError) as error:
            raise StorageError(key, self.url(key), _describe(error)) from error


@dataclasses.dataclass(frozen=True, slots=True)
class S3Client(ObstoreClient):
    """Client of S3, or of a store with the same API.

    Credentials come from the environment (`AWS_ACCESS_KEY_ID` and so on) or from the role of the
    instance or container.

    Attributes:
        bucket: Name of the bucket.
        prefix: Prefix of all keys, without slashes at its ends; empty for the whole bucket.
        endpoint: URL of a store other than AWS; empty for AWS.
        region: Region of the bucket; empty to use the environment's.
        answer_seconds: Limit of each try of a request, and the time after which a request is not
            repeated any more, in seconds.
    """

    bucket: str
    prefix: str
    endpoint: str
    region: str
    answer_seconds: int = 60

    def open_store(self) -> ObjectStore:
        return _open_s3(self)

    def url(self, key: str) -> str:
        return "/".join(filter(None, (f"s3://{self.bucket}", self.prefix, key)))


@functools.cache
def _open_s3(client: S3Client) -> ObjectStore:
    options: dict[str, Any] = {}
    if client.endpoint:
        options["endpoint"] = client.endpoint
        options["virtual_hosted_style_request"] = False
    if client.region:
        options["region"] = client.region
    return S3Store(
        client.bucket,
        prefix=client.prefix or None,
        client_options={
            "allow_http": client.endpoint.startswith("http://"),
            "connect_timeout": f"{min(client.answer_seconds, _CONNECT_SECONDS_MAX)}s",
            "timeout": f"{client.answer_seconds}s",
        },
        retry_config={
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=client.answer_seconds),
        },
        **options,
    )


class _ObstoreUpload:
    def __init__(self, client: ObstoreClient, key: str, file: obstore.WritableFile) -> None:
        self._client, self._key, self._file = client, key, file

    def write(self, data: bytes | memoryview, /) -> int:
        with self._client._errors(self._key):
            return self._file.write(bytes(data))

    def close(self) -> None:
        with self._client._errors(self._key):
            self._file.close()


_first_process: list[int] = []


def _check_not_forked(client: ObjectClient) -> None:
    if not _first_process:
        _first_process.append(os.getpid())
    if _first_process[0] != os.getpid():
        raise StorageError(
            "",
            client.url(""),
            f"process {os.getpid()} was forked after process {_first_process[0]} had used the "
            "object store, so its requests would block; start a new process instead",
        )


def _describe(error: BaseException) -> str:
    # obstore appends the debug representation of the error's cause.
    return str(error).partition("\n\nDebug source")[0][:_CAUSE_MAX]
