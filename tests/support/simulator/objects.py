"""An object store in a dictionary, as the storage of a simulated world: no threads of its own, so
that a history can be repeated.
"""

from __future__ import annotations

import dataclasses
import io
import time
from collections.abc import Sequence
from typing import Final

from hourmark.records.manifest import MARKER
from hourmark_etl.storage import NotFound, ObjectStorage, StorageEntry
from hourmark_etl.storage.object_client import (
    ObjectClient,
    ObjectListing,
    ObjectStatus,
    ObjectWriter,
)

_HOUR: Final = "/hour="


class DictionaryClient(ObjectClient):
    """See `ObjectClient`; `objects` maps keys to contents and ids of writes."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}

    def put_new(self, key: str, content: bytes | memoryview, write_id: str) -> bool:
        stored = (bytes(content), write_id)
        return self.objects.setdefault(key, stored) is stored

    def begin_upload(self, key: str) -> ObjectWriter:
        return _Upload(self, key)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return self._content(key)[start : start + length]

    def find_object(self, key: str) -> ObjectStatus | None:
        found = self.objects.get(key)
        return None if found is None else ObjectStatus(len(found[0]), found[1])

    def list_level(self, prefix: str) -> ObjectListing:
        begin, now_ms = f"{prefix}/" if prefix else "", time.time_ns() // 1_000_000
        below = [key.removeprefix(begin) for key in sorted(self.objects) if key.startswith(begin)]
        return ObjectListing(
            list(dict.fromkeys(name.partition("/")[0] for name in below if "/" in name)),
            [
                StorageEntry(name, len(self.objects[begin + name][0]), False, now_ms)
                for name in below
                if "/" not in name
            ],
        )

    def list_all(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(f"{prefix}/"))

    def copy(self, source: str, target: str) -> None:
        self.objects[target] = (self._content(source), "")

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def url(self, key: str) -> str:
        return f"memory://objects/{key}"

    def _content(self, key: str) -> bytes:
        try:
            return self.objects[key][0]
        except KeyError:
            raise NotFound(key, self.url(key), "there is no such object") from None


class _Upload(io.BytesIO):
    def __init__(self, client: DictionaryClient, key: str) -> None:
        super().__init__()
        self._client, self._key = client, key

    def close(self) -> None:
        if not self.closed:
            self._client.objects[self._key] = (self.getvalue(), "")
        super().close()


@dataclasses.dataclass(frozen=True)
class SimulatedObjects(ObjectStorage):
    """The storage, and what the judge asks of it."""

    client: ObjectClient = dataclasses.field(default_factory=DictionaryClient)
    retry_pauses_s: tuple[float, ...] = (0.0, 0.0)

    def content(self, folder: str) -> dict[str, bytes]:
        """All files below the folder, by path, as readers see them: a bucket appears with its
        marker.
        """
        found = self.list_files(folder)
        open_ = {p.rpartition("/")[0] for p in found if _HOUR in p and not p.startswith("_")}
        open_ -= {p.removesuffix(f"/{MARKER}") for p in found if p.endswith(f"/{MARKER}")}
        return {p: self.read(p) for p in found if p.rpartition("/")[0] not in open_}

    def forget(self) -> None:
        """See `MemoryStorage`."""
