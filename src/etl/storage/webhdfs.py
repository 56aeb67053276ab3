"""Storage on HDFS over WebHDFS (`hdfs://…`), without Java and without a native library.

Durable means what HDFS means by a closed file: the pipeline acknowledged every byte and the NameNode saw the minimum of replicas
(`dfs.namenode.replication.min`) finished; they may still be in the DataNodes' memory unless `dfs.datanode.synconclose` is set.
WebHDFS has no hsync of its own. Names (rename, delete) are in the NameNode's edit log, synced, before it answers.

RENAME always goes with `renameoptions=NONE`: the plain form moves the source INTO an existing target folder and answers true.
"""

from __future__ import annotations

import builtins
import dataclasses
import io
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from etl.storage.errors import AlreadyExists, NotFound, RenameUncertain, StorageError
from etl.storage.interface import Entry
from etl.storage.paths import checked, parent, scratch_path
from etl.storage.webhdfs_files import UPLOAD_BUFFER_BYTES, WINDOW_BYTES, Download, Upload
from etl.storage.webhdfs_http import Later, Lost, Target, ask

_RENAME_TRIES = 3


@dataclasses.dataclass(frozen=True, slots=True)
class WebHdfs:
    """See `etl.storage.interface.Storage`."""

    namenode: str  # hdfs://host:port, what Spark's JVM speaks to
    root: str  # absolute path in HDFS
    http: str  # http://host:port of the NameNode
    user: str
    replication: int

    def write_new(self, path: str, content: bytes) -> None:
        with self.create(path) as file:
            file.write(content)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        if self.exists(path):
            raise AlreadyExists(path, self.url(path), "exists already")
        unfinished = scratch_path()
        try:
            upload = Upload.begin(self._target(unfinished), self.replication)
            try:
                file = io.BufferedWriter(cast(Any, upload), UPLOAD_BUFFER_BYTES)
                yield cast(BinaryIO, file)
                file.flush()
                upload.finish()
            finally:
                upload.close()
            self._finish(unfinished, path, upload.sent)
        except BaseException:
            with suppress(StorageError):  # the first error is the one to tell; what is left is named like no bucket
                self.delete(unfinished)
            raise

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.read()

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(Download(self._target(path), self.size(path)), WINDOW_BYTES))

    def size(self, path: str) -> int:
        status = self._status(path)
        if status["type"] != "FILE":
            raise NotFound(path, self.url(path), "is a folder, not a file")
        return int(status["length"])

    def exists(self, path: str) -> bool:
        try:
            self._status(path)
        except NotFound:
            return False
        return True

    def list(self, folder: str) -> builtins.list[Entry]:
        answer = ask(self._target(folder, root_allowed=True), "GET", "LISTSTATUS", repeatable=True)
        found = answer.json()["FileStatuses"]["FileStatus"]
        if any(status["pathSuffix"] == "" for status in found):
            raise NotFound(folder, self.url(folder), "is a file, not a folder")
        return sorted(Entry(status["pathSuffix"], int(status["length"]), status["type"] == "DIRECTORY") for status in found)

    def make_folder(self, path: str) -> None:
        target = self._target(path, root_allowed=True)
        try:
            answer = ask(target, "PUT", "MKDIRS", repeatable=True)
        except NotFound as error:  # ParentNotDirectoryException
            raise AlreadyExists(path, target.url, f"a file stands where a folder is needed ({error.what})") from error
        if answer.json() != {"boolean": True}:
            raise StorageError(path, target.url, f"MKDIRS answered {answer.text[:200]!r}")

    def rename_new(self, source: str, target: str) -> None:
        """See the interface. After a lost answer the names decide:

        source there, target not: it did not happen (or has yet to): asked again, at most three times in all
        source there, target too: somebody else's, AlreadyExists
        source gone, target there: ours most likely, but another caller may have won and a cleaner removed our source, or the
        same source was renamed by another: RenameUncertain, and the caller reads the target
        source gone, target not: NotFound
        """
        to = f"{self.root}/{checked(target)}"
        self.make_folder(parent(target))
        lost = False
        for last in (False,) * (_RENAME_TRIES - 1) + (True,):
            try:
                ask(self._target(source), "PUT", "RENAME", repeatable=False, destination=to, renameoptions="NONE")
                break
            except AlreadyExists as error:
                raise AlreadyExists(target, self.url(target), error.what) from error
            except NotFound:
                if lost and self.exists(target):
                    raise RenameUncertain(target, self.url(target), f"the rename of {source} got no answer") from None
                raise
            except (Lost, Later):
                lost = True
                if last:
                    raise
            except StorageError as error:
                # A file onto a folder, or the reverse, is a plain IOException ("must both be directories").
                if type(error) is StorageError and self.exists(target):
                    raise AlreadyExists(target, self.url(target), error.what) from error
                raise
        # Checked by looking as well (camus#189): an answer alone is not believed.
        if not self.exists(target) or self.exists(source):
            raise StorageError(target, self.url(target), f"the rename of {source} was answered with success but did not happen")

    def delete(self, path: str) -> None:
        ask(self._target(path), "DELETE", "DELETE", repeatable=True, recursive="true")  # {"boolean": false}: it was missing

    def url(self, path: str) -> str:
        return f"{self.namenode}{posixpath.join(self.root or '/', checked(path, root_allowed=True))}".rstrip("/")

    def _finish(self, unfinished: str, path: str, sent: int) -> None:
        stored = self.size(unfinished)
        if stored != sent:
            raise StorageError(path, self.url(path), f"{sent} bytes were sent, {stored} are stored")
        # Nobody else knows the unfinished name: where it is gone and the target stands, it was our rename.
        with suppress(RenameUncertain):
            self.rename_new(unfinished, path)

    def _status(self, path: str) -> dict[str, Any]:
        answer = ask(self._target(path, root_allowed=True), "GET", "GETFILESTATUS", repeatable=True)
        return cast(dict[str, Any], answer.json()["FileStatus"])

    def _target(self, path: str, *, root_allowed: bool = False) -> Target:
        checked(path, root_allowed=root_allowed)
        file = f"{self.root}/{path}".rstrip("/") or "/"
        return Target(self.http, file, self.user, path, self.url(path))
