"""Streams over WebHDFS: an upload in chunks, a seekable download in windows. Both hold a bounded amount of memory.

An upload that breaks off must be removed: the DataNode closes the file when the connection ends, so a part of it stands there and
looks finished. That is why uploads go to a name that no reader looks at.
"""

from __future__ import annotations

import http.client
import io
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from etl.storage.errors import StorageError
from etl.storage.webhdfs_http import TIMEOUT_S, Lost, Target, ask, failure, fetch

WINDOW_BYTES: Final = 4 << 20  # two requests each; memory of a reader
UPLOAD_BUFFER_BYTES: Final = 1 << 20
GIVE_UP_S: Final = 10.0


class Upload(io.RawIOBase):
    """Writes one new file with HTTP chunks (RFC 9112, 7.1). `finish` says that all is there; closing without it gives up."""

    def __init__(self, target: Target, connection: http.client.HTTPConnection) -> None:
        self._target = target
        self._connection = connection
        self._finished = False
        self.sent = 0

    @classmethod
    def begin(cls, target: Target, replication: int) -> Upload:
        """Ask the NameNode where to write, and begin to write there. AlreadyExists if the name is taken."""
        told = ask(target, "PUT", "CREATE", repeatable=True, overwrite="false", replication=replication)
        address = urlsplit(told.location)
        if not address.hostname:
            raise StorageError(target.path, target.url, f"the NameNode named no DataNode to write to ({told.status_code})")
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        upload = cls(target, kind(address.hostname, address.port, timeout=TIMEOUT_S[1]))
        try:
            upload._begin(f"{address.path}?{address.query}")
        except BaseException:
            upload.close()
            raise
        return upload

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]  # typeshed says Buffer
        length = memoryview(data).nbytes
        if length:
            self._lost_as_error(lambda: self._connection.send(b"%x\r\n%b\r\n" % (length, bytes(data))))
            self.sent += length
        return length

    def finish(self) -> None:
        """Say that this was all and wait for the DataNodes' word."""
        self._lost_as_error(lambda: self._connection.send(b"0\r\n\r\n"))
        self._check_answer()
        self._finished = True

    def close(self) -> None:
        if not self._finished:
            self._give_up()
        self._connection.close()
        super().close()

    def _give_up(self) -> None:
        """Say that nothing more comes, and wait until the DataNode has let go: or it may make the file after it was removed."""
        with suppress(OSError):
            if self._connection.sock is not None:
                self._connection.sock.shutdown(socket.SHUT_WR)
                self._connection.sock.settimeout(GIVE_UP_S)
                while self._connection.sock.recv(4096):
                    pass

    def _begin(self, address: str) -> None:
        def send() -> None:
            self._connection.putrequest("PUT", address, skip_accept_encoding=True)
            self._connection.putheader("Content-Type", "application/octet-stream")
            self._connection.putheader("Transfer-Encoding", "chunked")
            self._connection.endheaders()

        self._lost_as_error(send)

    def _lost_as_error(self, send: Callable[[], None]) -> None:
        try:
            send()
        except OSError as error:
            self._check_answer(error)
            raise self._lost(error) from error

    def _check_answer(self, cause: OSError | None = None) -> None:
        """A DataNode that refuses may close before it has read everything: its reason is worth more than a broken pipe."""
        try:
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(cause or error) from error
        if answer.status >= 300:
            raise failure(self._target, answer.status, answer.reason, content)

    def _lost(self, error: Exception) -> Lost:
        server = f"{self._connection.host}:{self._connection.port}"
        what = f"the DataNode {server} broke off the upload after {self.sent} bytes ({type(error).__name__}: {error})"
        return Lost(self._target.path, self._target.url, what)


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
        windows = []
        while self._position < self._size:
            length = min(WINDOW_BYTES, self._size - self._position)
            windows.append(fetch(self._target, self._position, length))
            self._position += length
        return b"".join(windows)

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]  # typeshed says Buffer
        length = max(0, min(len(buffer), WINDOW_BYTES, self._size - self._position))
        if length:
            buffer[:length] = fetch(self._target, self._position, length)
            self._position += length
        return length
