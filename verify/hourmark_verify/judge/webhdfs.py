"""The two operations of WebHDFS that reading takes, by plain HTTP: LISTSTATUS and OPEN."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import ExitStack
from typing import IO, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

_TIMEOUT_SECONDS = 60.0
_IN_MEMORY_BYTES = 8 << 20  # a larger file is read by way of a temporary one


class Entry(NamedTuple):
    """One entry of a folder.

    `id` and `modified_ms` tell it from a later one of the same name and content.
    """

    name: str
    folder: bool
    id: int
    modified_ms: int


class Opened(NamedTuple):
    """A file's content, positioned at its start, with its size and BLAKE2b-128."""

    content: IO[bytes]
    size: int
    blake2b: str


class WebHdfs:
    """A NameNode's HTTP address. Errors are httpx.HTTPError, except that a missing folder is
    empty.
    """

    def __init__(self, address: str, user: str) -> None:
        self._address = address.rstrip("/")
        self._user = user
        # The servers are named by their addresses; a proxy of the environment has no business here.
        self._client = httpx.Client(
            timeout=_TIMEOUT_SECONDS, follow_redirects=True, trust_env=False
        )

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def list(self, folder: str) -> list[Entry]:
        """A folder's entries, sorted by name; of a file or of nothing: none."""
        answer = self._client.get(self._url(folder), params=self._params("LISTSTATUS"))
        if answer.status_code == httpx.codes.NOT_FOUND:
            return []
        answer.raise_for_status()
        rows = answer.json()["FileStatuses"]["FileStatus"]
        return sorted(
            Entry(
                row["pathSuffix"],
                row["type"] == "DIRECTORY",
                row["fileId"],
                row["modificationTime"],
            )
            for row in rows
            if row["pathSuffix"]
        )

    def open(self, file: str) -> Opened:
        """A file's whole content."""
        digest = hashlib.blake2b(digest_size=16)
        with ExitStack() as on_error:
            content = on_error.enter_context(
                tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)
            )
            with self._client.stream("GET", self._url(file), params=self._params("OPEN")) as answer:
                answer.raise_for_status()
                for block in answer.iter_bytes():
                    digest.update(block)
                    content.write(block)
            on_error.pop_all()  # from here on the caller closes it
        size = content.tell()
        content.seek(0)
        return Opened(content, size, digest.hexdigest())

    def _url(self, path: str) -> str:
        return f"{self._address}/webhdfs/v1{quote(path)}"

    def _params(self, operation: str) -> dict[str, str]:
        return {"op": operation, "user.name": self._user}


def hdfs_path(root: str) -> str:
    """The path of a root that may be written as hdfs://host:port/path."""
    path = urlsplit(root).path if "://" in root else root
    return "/" + path.strip("/")
