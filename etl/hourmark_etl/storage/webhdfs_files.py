"""Streams over WebHDFS: an upload in chunks, a seekable download in windows.

Both hold a bounded amount of memory.

An upload that breaks off must be removed: the DataNode closes the file when the connection ends, so
a part of it stands there and looks finished. That is why uploads go to a name that no reader looks
at.
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
    Target,
    answer_of,
    ask,
    at_datanode,
    connected,
    get,
    say,
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
    """Writes one new file with HTTP chunks (RFC 9112, 7.1).

    `finish` says that all is there; closing without it gives up.
    """

    def __init__(self, target: Target, connection: http.client.HTTPConnection) -> None:
        self._target = target
        self._connection = connection
        self._finished = False
        self.sent = 0

    @classmethod
    def begin(cls, target: Target, replication: int) -> Upload:
        """Begin to write where the NameNode says. AlreadyExists if the name is taken."""

        def begun(datanode: SplitResult) -> Upload:
            try:
                connection = connected(datanode)
                connection.putrequest(
                    "PUT", f"{datanode.path}?{datanode.query}", skip_accept_encoding=True
                )
                connection.putheader("Content-Type", "application/octet-stream")
                connection.putheader("Transfer-Encoding", "chunked")
                connection.endheaders()
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise target.lost(datanode.netloc, error) from error
            return cls(target, connection)

        return at_datanode(
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
        """Say that this was all and wait for the DataNodes' word."""
        self._send(b"0\r\n\r\n")
        self._check_answer()
        self._finished = True

    def close(self) -> None:
        if not self._finished:
            self._give_up()
        self._connection.close()
        super().close()

    def _give_up(self) -> None:
        """Say that nothing more comes, and wait until the DataNode has let go: or it may make the
        file after it was removed.
        """
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
        """A DataNode that refuses may close before it has read everything: its reason is worth more
        than a broken pipe.
        """
        try:
            answer_of(self._connection, self._target, 201)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(cause or error) from error

    def _lost(self, error: Exception) -> StorageError:
        what = f"it broke off the upload after {self.sent} bytes: {type(error).__name__}: {error}"
        return self._target.lost(f"{self._connection.host}:{self._connection.port}", what)


class Download(io.RawIOBase):
    """Reads a finished file of `size` bytes; wrap it in a BufferedReader of WINDOW_BYTES."""

    def __init__(self, target: Target, size: int) -> None:
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
        """The rest, in windows: the inherited one would ask for 8 KiB at a time."""
        return b"".join(iter(lambda: self._window(WINDOW_BYTES), b""))

    # typeshed says Buffer
    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        window = self._window(len(buffer))
        buffer[: len(window)] = window
        return len(window)

    def _window(self, wanted: int) -> bytes:
        """The next bytes, as many as wanted, as are left, or as a window holds."""
        length = max(0, min(wanted, WINDOW_BYTES, self._size - self._position))
        if not length:
            return b""
        target, span = self._target, {"offset": self._position, "length": length}
        try:
            found = at_datanode(
                target, "GET", "OPEN", lambda datanode: get(target, datanode, length), **span
            )
        except StorageError as error:
            self._refuse_bad_blocks(error, span)
            raise
        self._position += length
        return found

    def _refuse_bad_blocks(self, error: StorageError, span: dict[str, int]) -> None:
        """BadBlocks where the NameNode says that no replica is whole, or there is none; not while
        no DataNode lives at all.
        """
        target = self._target
        blocks = ask(
            target, "GET", "GETFILEBLOCKLOCATIONS", _Located, **span
        ).BlockLocations.BlockLocation
        if all(block.hosts for block in blocks) and not any(block.corrupt for block in blocks):
            return
        say(
            target, "PUT", "CREATE", 307
        )  # makes nothing yet: it names a DataNode, if only one lives
        raise BadBlocks(target.path, target.url, error.what) from error
