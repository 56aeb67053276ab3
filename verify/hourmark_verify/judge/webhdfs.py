"""A read-only WebHDFS client with the two operations LISTSTATUS and OPEN."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import ExitStack, closing
from typing import IO, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

_TIMEOUT_SECONDS = 60.0
_IN_MEMORY_BYTES = 8 << 20  # larger files are stored in a temporary file


class HdfsEntry(NamedTuple):
    """One file or folder in the listing of an HDFS folder.

    Attributes:
        name: Name without the path.
        folder: Whether the entry is a folder.
        id: HDFS file id. It changes if the file is replaced by another one of the same name.
        modified_ms: Modification time in Unix milliseconds.
    """

    name: str
    folder: bool
    id: int
    modified_ms: int


class DownloadedFile(NamedTuple):
    """The content of an HDFS file, positioned at its start, with its size and digest.

    Attributes:
        content: Binary stream, which the caller closes.
        size: Size in bytes.
        blake2b: BLAKE2b-128 digest of the content, in hexadecimal.
    """

    content: IO[bytes]
    size: int
    blake2b: str


class WebHdfsReader:
    """A read-only WebHDFS client. Failed requests raise `httpx.HTTPError`.

    With several NameNodes, the first one that responds and is not a standby is used.

    Args:
        address: Address of the NameNode, such as http://127.0.0.1:9870, or comma-separated
            addresses of the NameNodes of a name service.
        user: HDFS user name for all requests.
    """

    def __init__(self, address: str, user: str) -> None:
        self._addresses = [name.strip().rstrip("/") for name in address.split(",")]
        self._user = user
        # The addresses are those of the servers, so a proxy in the environment must not be used.
        self._client = httpx.Client(
            timeout=_TIMEOUT_SECONDS, follow_redirects=True, trust_env=False
        )

    def close(self) -> None:
        """Close all HTTP connections. The client cannot be used afterwards."""
        self._client.close()

    def list(self, folder: str) -> list[HdfsEntry]:
        """Return the entries of a folder, sorted by name.

        Args:
            folder: Absolute path in HDFS.

        Returns:
            The entries; an empty list if the path is a file or does not exist.

        Raises:
            httpx.HTTPError: The request fails.
        """
        with closing(self._send("LISTSTATUS", folder)) as response:
            response.read()
        if response.status_code == httpx.codes.NOT_FOUND:
            return []
        response.raise_for_status()
        rows = response.json()["FileStatuses"]["FileStatus"]
        return sorted(
            HdfsEntry(
                row["pathSuffix"],
                row["type"] == "DIRECTORY",
                row["fileId"],
                row["modificationTime"],
            )
            for row in rows
            if row["pathSuffix"]
        )

    def open(self, file: str) -> DownloadedFile:
        """Download a file and return its content, size and digest.

        Files of more than 8 MiB are stored in a temporary file.

        Args:
            file: Absolute path in HDFS.

        Raises:
            httpx.HTTPError: The request failed, or the file does not exist.
        """
        digest = hashlib.blake2b(digest_size=16)
        with ExitStack() as on_error:
            content = on_error.enter_context(
                tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)
            )
            with closing(self._send("OPEN", file)) as response:
                response.raise_for_status()
                for block in response.iter_bytes():
                    digest.update(block)
                    content.write(block)
            on_error.pop_all()  # from here on the caller closes it
        size = content.tell()
        content.seek(0)
        return DownloadedFile(content, size, digest.hexdigest())

    def _send(self, operation: str, path: str) -> httpx.Response:
        # The caller closes the response.
        *others, last = self._addresses
        for address in others:
            try:
                response = self._send_to(address, operation, path)
            except httpx.TransportError:
                continue
            if not _is_standby(response):
                return response
            response.close()
        return self._send_to(last, operation, path)

    def _send_to(self, address: str, operation: str, path: str) -> httpx.Response:
        url = f"{address}/webhdfs/v1{quote(path)}"
        parameters = {"op": operation, "user.name": self._user}
        return self._client.send(
            self._client.build_request("GET", url, params=parameters), stream=True
        )


def _is_standby(response: httpx.Response) -> bool:
    if response.status_code != httpx.codes.FORBIDDEN:
        return False
    return b"StandbyException" in response.read()


def hdfs_path(root: str) -> str:
    """Return the HDFS path of a root folder, with a leading slash and without a trailing one.

    Args:
        root: Path of the folder, or URL such as hdfs://host:port/path.
    """
    path = urlsplit(root).path if "://" in root else root
    return "/" + path.strip("/")
