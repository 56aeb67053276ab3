"""Object stores for tests: one in memory, and one that loses requests and responses on order.

The store in memory is obstore's own; only the faults are this module's.
"""

from __future__ import annotations

import dataclasses
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from obstore.store import MemoryStore, ObjectStore

from hourmark_etl.storage import ObjectStorage, StorageError
from hourmark_etl.storage.object_client import (
    ObjectClient,
    ObjectListing,
    ObjectStatus,
    ObjectWriter,
)
from hourmark_etl.storage.obstore_client import ObstoreClient

_STORES: Final[dict[str, MemoryStore]] = {}

Fault = Literal["dropped", "lost", "refused", "conflict", "killed before", "killed after", "late"]
FAULTS: Final[tuple[Fault, ...]] = (
    "dropped",  # not executed, and no response
    "lost",  # executed, and no response
    "refused",  # executed, and repeated by the client's library, which is told that it exists
    "conflict",  # not executed, and reported as a conflict, or as an error without a condition
    "killed before",
    "killed after",
    "late",  # no response; executed when the test says so
)


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryClient(ObstoreClient):
    """Objects in the memory of this process; a pickled client has the same ones."""

    name: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)

    def open_store(self) -> ObjectStore:
        return _STORES.setdefault(self.name, MemoryStore())

    def url(self, key: str) -> str:
        return f"memory://{self.name}/{key}"


def memory_objects(**changed: Any) -> ObjectStorage:
    """A storage on an empty store in memory, without pauses."""
    return ObjectStorage(MemoryClient(), **{"retry_pauses_s": (0.0, 0.0), **changed})


class Killed(BaseException):
    """The process of the client ends here."""


class FaultyClient(ObjectClient):
    """Passes requests to another client; `faults` says what happens to the n-th one that changes
    something, from 1.
    """

    def __init__(self, client: ObjectClient, faults: dict[int, Fault] | None = None) -> None:
        self.client, self.faults = client, faults or {}
        self.changes: list[str] = []
        self.late: list[Callable[[], object]] = []
        self.is_killed = False
        self._counting = threading.Lock()
        self.before_change: Callable[[int], None] = lambda number: None

    def _change(self, key: str, request: Callable[[], Any], *, is_conditional: bool = False) -> Any:
        if self.is_killed:
            raise Killed
        with self._counting:
            self.changes.append(key)
            number = len(self.changes)
        self.before_change(number)
        fault = self.faults.get(number)
        self.is_killed = fault in ("killed before", "killed after")
        if fault == "killed before":
            raise Killed
        if fault == "late":
            self.late.append(request)
        if fault == "conflict" and is_conditional:
            return False
        if fault in ("dropped", "late", "conflict"):
            raise StorageError(key, self.url(key), f"{fault}, planted")
        answer = request()
        if fault == "killed after":
            raise Killed
        if fault == "lost":
            raise StorageError(key, self.url(key), "the response is lost, planted")
        return False if fault == "refused" else answer

    def deliver_late(self) -> None:
        """What was late arrives at the store, and nobody hears its answer."""
        while self.late:
            with suppress(StorageError):
                self.late.pop(0)()

    def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
        created = self._change(
            key, lambda: self.client.put_new(key, content, write_id), is_conditional=True
        )
        return bool(created)

    def copy(self, source: str, target: str) -> None:
        self._change(target, lambda: self.client.copy(source, target))

    def delete(self, keys: Sequence[str]) -> None:
        self._change(keys[0] if keys else "", lambda: self.client.delete(keys))

    def begin_upload(self, key: str) -> ObjectWriter:
        return self.client.begin_upload(key)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return self.client.read_range(key, start, length)

    def find_object(self, key: str) -> ObjectStatus | None:
        return self.client.find_object(key)

    def list_level(self, prefix: str) -> ObjectListing:
        return self.client.list_level(prefix)

    def list_all(self, prefix: str) -> list[str]:
        return self.client.list_all(prefix)

    def url(self, key: str) -> str:
        return self.client.url(key)
