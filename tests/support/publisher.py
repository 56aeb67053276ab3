"""A writer that publishes folders as closing does, for tests of faults of the storage."""

from __future__ import annotations

import threading
import uuid
from typing import Final

from hourmark_etl.storage import AlreadyExists, FolderStorage, StorageError

_PAUSE_S: Final = 0.1


class Publisher:
    """Publishes folders one after the other until it is stopped, as closing does: each try writes a
    folder of its own, and renames it.

    `pause_s`: between two folders, for tests that take long.
    """

    def __init__(self, storage: FolderStorage, name: str, pause_s: float = 0.0) -> None:
        self._storage, self._name, self._pause_s = storage, name, pause_s
        self.published: dict[str, bytes] = {}  # the content by the folder
        self.errors: list[StorageError] = []

    def run(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self._publish(f"{self._name}/{len(self.published)}", ended)
            ended.wait(self._pause_s)

    def _publish(self, target: str, ended: threading.Event) -> None:
        tried: dict[str, bytes] = {}
        while not ended.is_set():
            attempt = f"_attempts/{uuid.uuid4().hex}"
            tried[attempt] = attempt.encode() * 1000
            try:
                self._storage.write_new(f"{attempt}/part", tried[attempt], unpublished=True)
                self._storage.rename_new(attempt, target)
            except AlreadyExists:
                stored = self._storage.read(f"{target}/part")
                assert self.errors and stored in tried.values(), "no other writer uses this folder"
                self.published[target] = stored
                return
            except StorageError as error:
                self.errors.append(error)
                ended.wait(_PAUSE_S)
            else:
                self.published[target] = tried[attempt]
                return

    def check(self) -> None:
        """Each folder is there once, as it was published."""
        for target, content in self.published.items():
            assert self._storage.read(f"{target}/part") == content
            assert [entry.name for entry in self._storage.list(target)] == ["part"]
