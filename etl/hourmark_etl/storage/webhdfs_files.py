"""Streams over WebHDFS: chunked uploads, and seekable downloads in windows, in bounded memory.

An interrupted upload must be deleted: the DataNode closes the file when the connection ends, so a
partial file looks complete. Uploads therefore use a path that no reader accesses.
"""

from __future__ import annotations

import http.client
import io
import socket
from contextlib import suppress
from typing import Final
from urllib.parse import SplitResult

from pydantic import BaseModel

from hourmark_etl.storage.errors import BadBlocks, StorageError
from hourmark_etl.storage.webhdfs_http import (
    WebHdfsTarget,
    check_content,
    open_connection,
    read_exactly,
    read_response,
    request_json,
    run_on_datanode,
    send_once,
)

WINDOW_BYTES: Final = 4 << 20  # two requests each; memory of a reader
UPLOAD_BUFFER_BYTES: Final = 1 << 20
GIVE_UP_S: Final = 10.0


class _Block(BaseModel, strict=True):
    corrupt: bool  # each replica is
    hosts: list[str]


class _Blocks(BaseModel):
    BlockLocation: list[_Block]


class _Located(BaseModel):
    BlockLocations: _Blocks


class Upload(io.RawIOBase):
    """Writable stream that creates an HDFS file with a chunked HTTP request.

    Call `finish` to complete the upload. If the stream is closed before that, the upload is
    aborted. It may leave a partial file, which the caller must delete. The chunked encoding follows
    RFC 9112, section 7.1.

    Args:
        target: The HDFS file to create.
        connection: Connection to a DataNode on which the request headers have been sent.
    """

    def __init__(self, target: WebHdfsTarget, connection: http.client.HTTPConnection) -> None:
        self._target = target
        self._connection = connection
        self._finished = False
        self.sent = 0

    @classmethod
    def begin(cls, target: WebHdfsTarget, replication: int) -> Upload:
        """Start to upload a new file to a DataNode that the NameNode selects.

        Args:
            target: File to create.
            replication: Number of replicas of the file.

        Returns:
            The open stream for the content.

        Raises:
            AlreadyExists: The file exists.
            StorageError: The upload could not be started, even after retries.
        """

        def begun(datanode: SplitResult) -> Upload:
            try:
                connection = open_connection(datanode, target.ca)
                connection.putrequest(
                    "PUT", f"{datanode.path}?{datanode.query}", skip_accept_encoding=True
                )
                connection.putheader("Content-Type", "application/octet-stream")
                connection.putheader("Transfer-Encoding", "chunked")
                connection.endheaders()
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise target.unknown_outcome(datanode.netloc, error) from error
            return cls(target, connection)

        return run_on_datanode(
            target, "PUT", "CREATE", begun, overwrite="false", replication=replication
        )

    def writable(self) -> bool:
        return True

    # typeshed says Buffer
    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        length = memoryview(data).nbytes
        if length:
            self._send(b"%x\r\n%b\r\n" % (length, bytes(data)))
            self.sent += length
        return length

    def finish(self) -> None:
        """Complete the upload and wait for the confirmation of the DataNode.

        Raises:
            StorageError: The upload was refused, or its outcome is unknown. The caller must delete
                the partial file.
        """
        self._send(b"0\r\n\r\n")
        self._check_answer()
        self._finished = True

    def close(self) -> None:
        if not self._finished:
            self._give_up()
        self._connection.close()
        super().close()

    def _give_up(self) -> None:
        # Wait until the DataNode has closed the connection: otherwise it may create the file after
        # the caller deleted it.
        with suppress(OSError):
            if self._connection.sock is not None:
                self._connection.sock.shutdown(socket.SHUT_WR)
                self._connection.sock.settimeout(GIVE_UP_S)
                while self._connection.sock.recv(4096):
                    pass

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send(data)
        except OSError as error:
            self._check_answer(error)
            raise self._lost(error) from error

    def _check_answer(self, cause: OSError | None = None) -> None:
        # A DataNode that refuses may close the connection before it has read everything; its reason
        # is more useful than a broken pipe.
        try:
            read_response(self._connection, self._target, 201)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(cause or error) from error

    def _lost(self, error: Exception) -> StorageError:
        what = (
            f"the server ended the upload after {self.sent} bytes: {type(error).__name__}: {error}"
        )
        return self._target.unknown_outcome(
            f"{self._connection.host}:{self._connection.port}", what
        )


class Download(io.RawIOBase):
    """Seekable, unbuffered binary stream that reads a complete HDFS file.

    Each read requests up to `WINDOW_BYTES` from a DataNode. Wrap an instance in a `BufferedReader`
    with a buffer of this size. Reads raise BadBlocks if no intact replica is available, and
    StorageError for other failures.

    Args:
        target: The file to read.
        size: Size of the file in bytes.
    """

    def __init__(self, target: WebHdfsTarget, size: int) -> None:
        self._target = target
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"a position before the file's beginning: {start + offset}")
        self._position = start + offset
        return self._position

    def readall(self) -> bytes:
        """Read all bytes from the current position to the end of the file.

        Each request reads up to `WINDOW_BYTES`.

        Returns:
            The bytes; b"" at the end of the file.
        """
        return b"".join(iter(lambda: self._window(WINDOW_BYTES), b""))

    # typeshed says Buffer
    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        window = self._window(len(buffer))
        buffer[: len(window)] = window
        return len(window)

    def _window(self, wanted: int) -> bytes:
        length = max(0, min(wanted, WINDOW_BYTES, self._size - self._position))
        if not length:
            return b""
        target, span = self._target, {"offset": self._position, "length": length}
        try:
            found = run_on_datanode(
                target,
                "GET",
                "OPEN",
                lambda datanode: read_exactly(target, datanode, length),
                lambda answer: check_content(target, target.servers, answer, length),
                **span,
            )
        except StorageError as error:
            self._refuse_bad_blocks(error, span)
            raise
        self._position += length
        return found

    def _refuse_bad_blocks(self, error: StorageError, span: dict[str, int]) -> None:
        # Raise BadBlocks if the NameNode reports a block without an intact replica. The last
        # request checks that at least one DataNode is alive; otherwise its error is raised instead.
        target = self._target
        blocks = request_json(
            target, "GET", "GETFILEBLOCKLOCATIONS", _Located, **span
        ).BlockLocations.BlockLocation
        if all(block.hosts for block in blocks) and not any(block.corrupt for block in blocks):
            return
        send_once(
            target, "PUT", "CREATE", 307
        )  # makes nothing yet: it names a DataNode, if only one lives
        raise BadBlocks(target.path, target.url, error.what) from error
