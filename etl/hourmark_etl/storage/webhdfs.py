"""Storage on HDFS over WebHDFS (`hdfs://…`), without Java and without a native library.

A file is durable when HDFS has closed it: the pipeline acknowledged every byte and the NameNode saw
the minimum number of finished replicas (`dfs.namenode.replication.min`). The bytes may still be in
the DataNodes' memory unless `dfs.datanode.synconclose` is set; WebHDFS has no hsync. Renames and
deletes are in the NameNode's synced edit log before it responds.

RENAME requests always use `renameoptions=NONE`, because the plain form moves the source into an
existing target folder and reports success.
"""

from __future__ import annotations

import builtins
import dataclasses
import io
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

from pydantic import BaseModel, Field

from hourmark_etl.storage.errors import AlreadyExists, NotFound, StorageError
from hourmark_etl.storage.interface import FolderStorage, StorageEntry
from hourmark_etl.storage.paths import check_path, parent_folder, scratch_path
from hourmark_etl.storage.webhdfs_files import UPLOAD_BUFFER_BYTES, WINDOW_BYTES, Download, Upload
from hourmark_etl.storage.webhdfs_http import (
    RETRY_PAUSES_S,
    OutcomeUnknown,
    ReadOnlyGateway,
    TokenSource,
    WebHdfsResponse,
    WebHdfsTarget,
    request_json,
    send_once,
)

_RENAME_TRIES: Final = 3


class _Status(BaseModel, strict=True):
    pathSuffix: str  # the names are WebHDFS's
    type: Literal["FILE", "DIRECTORY", "SYMLINK"]
    length: int = Field(ge=0)
    fileId: int | None = Field(default=None, gt=0)  # HttpFS before Hadoop 3.3 returns none
    modificationTime: int


class _OneStatus(BaseModel):
    FileStatus: _Status


class _Statuses(BaseModel):
    FileStatus: list[_Status]


class _Listing(BaseModel):
    FileStatuses: _Statuses


class _Done(BaseModel, strict=True):
    boolean: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WebHdfs(FolderStorage):
    """Storage backend for HDFS that uses the WebHDFS REST API.

    Attributes:
        filesystem: `hdfs://host:port` or `hdfs://nameservice`, for URLs in messages.
        root: Absolute path of the storage root in HDFS.
        namenodes: `http://host:port` of each NameNode that can be active.
        ca: PEM file with the CA certificates for https:// addresses; None for those of the system.
        user: HDFS user name that is sent with all requests; not used with Kerberos.
        kerberos: Source of delegation tokens; None if HDFS does not use Kerberos.
        replication: Number of replicas of each new file.
        retry_pauses_s: Pause before each retry of a request without a response, in seconds.
    """

    filesystem: str
    root: str
    namenodes: tuple[str, ...]
    ca: Path | None = None
    user: str
    kerberos: TokenSource | None = None
    replication: int
    retry_pauses_s: tuple[float, ...] = RETRY_PAUSES_S

    @contextmanager
    def create(self, path: str, *, unpublished: bool = False) -> Iterator[BinaryIO]:
        unfinished = (
            path if unpublished else scratch_path()
        )  # an existing target is detected at the end, which saves a request
        try:
            with Upload.begin(self._target(unfinished), self.replication) as upload:
                file = io.BufferedWriter(cast(Any, upload), UPLOAD_BUFFER_BYTES)
                yield cast(BinaryIO, file)
                file.flush()
                upload.finish()
            if unpublished:
                return
            stored = self._found(unfinished)
            if stored is None or stored.length != upload.sent:
                what = (
                    f"{upload.sent} bytes were sent, but {stored.length if stored else 'none'} "
                    "are stored"
                )
                raise StorageError(path, self.url(path), what)
            self._move(stored, unfinished, path)
        except BaseException as error:
            if not (unpublished and isinstance(error, AlreadyExists)):  # then it is not ours
                with suppress(
                    StorageError
                ):  # report the first error; the leftover has no name of a bucket
                    self.delete(unfinished)
            raise

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        known = self.size(path) if size is None else size
        return cast(BinaryIO, io.BufferedReader(Download(self._target(path), known), WINDOW_BYTES))

    def size(self, path: str) -> int:
        status = self._status(path)
        if status.type != "FILE":
            raise NotFound(path, self.url(path), "is a folder, not a file")
        return status.length

    def exists(self, path: str) -> bool:
        return self._found(path) is not None

    def list(self, folder: str) -> builtins.list[StorageEntry]:
        found = request_json(
            self._target(folder, root_allowed=True), "GET", "LISTSTATUS", _Listing
        ).FileStatuses.FileStatus
        if any(status.pathSuffix == "" for status in found):
            raise NotFound(folder, self.url(folder), "is a file, not a folder")
        return sorted(
            StorageEntry(s.pathSuffix, s.length, s.type == "DIRECTORY", s.modificationTime)
            for s in found
        )

    def make_folder(self, path: str) -> None:
        target = self._target(path, root_allowed=True)
        try:
            made = request_json(target, "PUT", "MKDIRS", _Done).boolean
        except NotFound as error:  # ParentNotDirectoryException
            raise AlreadyExists(
                path, target.url, f"a file exists where a folder is needed ({error.what})"
            ) from error
        if not made:
            raise StorageError(
                path, target.url, "the folder was not created; the NameNode returned no reason"
            )

    def rename_new(self, source: str, target: str, *, unpublished: bool = False) -> None:
        """Move a file or folder atomically to a path that does not exist yet.

        If the response to the rename is lost, this method compares the file id (inode number) of
        the target with that of the source. A rename does not change the id, and HDFS never reuses
        ids.

        Args:
            source: Path of the existing file or folder.
            target: New path.
            unpublished: Set to True if no other caller uses the source or the target, so that
                whatever is at the target was moved by this call.

        Raises:
            NotFound: The source does not exist.
            AlreadyExists: The target exists, even as an empty folder. Nothing was changed.
            StorageError: The storage is unavailable or refuses the operation.
        """
        self._move(None if unpublished else self._status(source), source, target)

    def _move(self, moved: _Status | None, source: str, target: str) -> None:
        # A folder's move is always verified, because it publishes a bucket. Without `moved`, nobody
        # else uses these paths.
        to = self._target(target)
        if moved is not None and moved.fileId is None:
            # A rename whose response was lost cannot be looked up.
            raise ReadOnlyGateway(source, self.url(source), "the server returned no file ids")
        lost = False
        for _ in range(_RENAME_TRIES):
            refused: StorageError | None = None
            try:
                done = self._rename(source, target).is_empty_success
                if done and (moved is None or moved.type == "FILE"):
                    return
            except StorageError as error:
                refused, lost = error, lost or isinstance(error, OutcomeUnknown)
            standing = self._found(target)
            is_ours = standing and (moved is None or standing.fileId == moved.fileId)
            if is_ours and (lost or not refused):
                return
            if standing and not isinstance(refused, NotFound):
                what = refused.what if refused else "another file or folder exists there"
                raise AlreadyExists(target, to.url, what) from refused
            if not isinstance(refused, OutcomeUnknown):
                break
        raise refused or StorageError(
            target, to.url, f"the rename of {source} was reported as successful, but did not happen"
        )

    def _rename(self, source: str, target: str) -> WebHdfsResponse:
        # The target's folder is created only if it is missing, which saves a request otherwise.
        rename = partial(
            send_once,
            self._target(source),
            "PUT",
            "RENAME",
            destination=self._target(target).file,
            renameoptions="NONE",
        )
        try:
            return rename()
        except NotFound:  # the folder, or the source: then it is not found again
            self.make_folder(parent_folder(target))
            return rename()

    def delete(self, path: str) -> None:
        gone = request_json(self._target(path), "DELETE", "DELETE", _Done, recursive="true").boolean
        if not gone and self.exists(path):  # it is false, too, where nothing stood
            raise StorageError(
                path, self.url(path), "was not deleted; the NameNode returned no reason"
            )

    def url(self, path: str) -> str:
        return f"{self.filesystem}{posixpath.join(self.root or '/', check_path(path, root_allowed=True))}".rstrip(
            "/"
        )

    def _status(self, path: str) -> _Status:
        return request_json(
            self._target(path, root_allowed=True), "GET", "GETFILESTATUS", _OneStatus
        ).FileStatus

    def _found(self, path: str) -> _Status | None:
        try:
            return self._status(path)
        except NotFound:
            return None

    def _target(self, path: str, *, root_allowed: bool = False) -> WebHdfsTarget:
        check_path(path, root_allowed=root_allowed)
        file = f"{self.root}/{path}".rstrip("/") or "/"
        return WebHdfsTarget(
            namenodes=self.namenodes,
            ca=self.ca,
            file=file,
            user=self.user,
            path=path,
            url=self.url(path),
            kerberos=self.kerberos,
            retry_pauses_s=self.retry_pauses_s,
        )
