"""Time that HDFS itself needs for closed buckets: a bare WebHDFS client writes, reads and renames.

There is no proof, ledger or Avro: the files have the same number of bytes, and as many buckets are
written in parallel. The additional time of closing is Hourmark's.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import quote, urlsplit

from hourmark.config.groups import StorageSettings
from hourmark_etl.storage import Storage

AT_ONCE: Final = 8  # as many buckets as closing publishes side by side
_TIMEOUT_S: Final = 60.0
Sizes = Sequence[int]  # of a bucket's files, in bytes


def sizes_of(storage: Storage, folders: Sequence[str]) -> list[Sizes]:
    """Return the sizes of each bucket's files."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(
            pool.map(
                lambda folder: [
                    entry.size for entry in storage.list(folder) if not entry.is_folder
                ],
                folders,
            )
        )


def seconds_for(settings: StorageSettings, folder: str, buckets: Sequence[Sizes]) -> float:
    """Return the seconds to create buckets with these file sizes, each published by a rename.

    They are created in an empty folder below the storage root.
    """
    client = _Client(settings.webhdfs, settings.user or getpass.getuser())
    root = f"{urlsplit(settings.root).path.rstrip('/')}/{folder}"
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda numbered: _publish(client, root, *numbered), enumerate(buckets)))
    return time.monotonic() - began


def _publish(client: _Client, root: str, number: int, sizes: Sizes) -> None:
    attempt, target = f"{root}/attempts/{number}", f"{root}/type-{number}/hour"
    client.ask("PUT", attempt, "MKDIRS")
    for index, size in enumerate(sizes):
        client.send(f"{attempt}/{index}", os.urandom(size))
        assert len(client.read(f"{attempt}/{index}")) == size
    client.ask("PUT", f"{root}/type-{number}", "MKDIRS")
    assert client.ask("PUT", attempt, f"RENAME&destination={quote(target)}") == {"boolean": True}, (
        target
    )


class _Client:
    """A WebHDFS client with one persistent connection per thread and server."""

    def __init__(self, webhdfs: str, user: str) -> None:
        self._namenode, self._user = urlsplit(webhdfs).netloc, user
        self._kept = threading.local()

    def ask(self, method: str, path: str, operation: str) -> dict[str, object]:
        """Send one operation to the NameNode and return its JSON response."""
        url = f"/webhdfs/v1{quote(path)}?op={operation}&user.name={self._user}"
        answer: dict[str, object] = json.loads(self._answer(self._namenode, method, url))
        return answer

    def send(self, path: str, content: bytes) -> None:
        """Write a file in two requests: the NameNode names the DataNode, which receives the
        content.
        """
        self._at_datanode("PUT", path, "CREATE&overwrite=false", content)

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        return self._at_datanode("GET", path, "OPEN")

    def _at_datanode(
        self, method: str, path: str, operation: str, content: bytes | None = None
    ) -> bytes:
        there = urlsplit(str(self.ask(method, path, f"{operation}&noredirect=true")["Location"]))
        return self._answer(there.netloc, method, f"{there.path}?{there.query}", content)

    def _answer(self, server: str, method: str, url: str, content: bytes | None = None) -> bytes:
        connections: dict[str, http.client.HTTPConnection] = self._kept.__dict__
        if server not in connections:
            connections[server] = http.client.HTTPConnection(server, timeout=_TIMEOUT_S)
        connection = connections[server]
        connection.request(method, url, content, {"Content-Type": "application/octet-stream"})
        response = connection.getresponse()
        body = response.read()
        assert response.status < 300, f"{method} {url}: {response.status} {body[:500]!r}"
        return body
