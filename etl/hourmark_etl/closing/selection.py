"""Publishes written hours as buckets on an object store, where one conditional put decides.

The *selection* of an hour is an object that is created once and never deleted. It names the attempt
that becomes the bucket, the exact bytes of its `_SUCCESS`, and the source of each file. Whoever
finds it copies the missing files into the hour's prefix, compares the prefix with the manifest, and
puts `_SUCCESS` conditionally. All of these steps can be repeated by any closer at any time.

Sources are deleted only if no selection of their hour can succeed any more: see
`BucketPublication.can_select_deleted` and the decision record
 2026-11-30-publishing-on-object-stores.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict

from hourmark.errors import Finding
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import decode_manifest, find_manifest
from hourmark_etl.closing.bucket_manifest import name_files
from hourmark_etl.closing.publication import BucketPublication, PreparedBucket, check_publishable
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.model import Frontier
from hourmark_etl.storage import (
    AlreadyExists,
    NotFound,
    ObjectStorage,
    StorageError,
    delete_all,
    list_if_exists,
    map_concurrently,
)
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER, SELECTIONS_FOLDER

_LOG: Final = logging.getLogger(__name__)


class Selection(BaseModel):
    """The attempt that becomes the bucket of an hour.

    Attributes:
        format: Version of this format.
        attempt: Id of the attempt.
        marker: Content of the bucket's `_SUCCESS` file.
        sources: Paths of the attempt's files, relative to the storage root, by their names in the
            bucket.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    attempt: str
    marker: str
    sources: dict[str, str]


def selection_path(frontier: Frontier) -> str:
    """Return the path of the selection of an hour, relative to the storage root.

    Args:
        frontier: Event type and hour of the bucket.
    """
    return f"{SELECTIONS_FOLDER}/{frontier.hour.bucket_path(frontier.event_type)}.json"


@dataclasses.dataclass(frozen=True)
class SelectPublication(BucketPublication):
    """Publishes buckets on an object store.

    Attributes:
        storage: Storage with the attempts, the selections and the buckets.
    """

    can_select_deleted: ClassVar[bool] = True
    storage: ObjectStorage

    def prepare(
        self, frontier: Frontier, written_hour: WrittenHour, manifest: Manifest
    ) -> PreparedBucket:
        check_publishable(written_hour)
        sources = {name: file.path for name, file in name_files(written_hour.files)}
        wanted = {file.name: file.bytes for file in manifest.files}
        found = dict(zip(sources, map_concurrently(self._size, sources.values()), strict=True))
        if found != wanted:
            raise Finding(
                f"the files of attempt {manifest.attempt} for {frontier.event_type} "
                f"{frontier.hour} have the sizes {found}, but the manifest lists {wanted}; the "
                "attempt is not published"
            )
        return PreparedBucket(frontier, manifest, sources)

    def publish(
        self,
        buckets: Sequence[PreparedBucket],
        *,
        is_folder_complete: bool,  # noqa: ARG002  # nothing can be published together
    ) -> Iterator[Manifest]:
        for bucket in buckets:
            published = self.find(bucket.frontier)
            yield self._select(bucket) if published is None else published

    def find(self, frontier: Frontier) -> Manifest | None:
        if published := find_manifest(self.storage, frontier.event_type, frontier.hour):
            return published
        try:
            selection = self._read_selection(frontier)
        except NotFound:
            return None
        return self._complete(frontier, selection)

    def list_attempts(self) -> list[str]:
        return [
            f"{ATTEMPTS_FOLDER}/{entry.name}"
            for entry in list_if_exists(self.storage, ATTEMPTS_FOLDER)
        ]

    def delete_attempt(self, attempt: str, *, is_closed: bool) -> None:
        if is_closed:
            self.storage.delete(f"{ATTEMPTS_FOLDER}/{attempt}")

    def _size(self, path: str) -> int:
        try:
            return self.storage.size(path)
        except NotFound:
            return -1

    def _select(self, bucket: PreparedBucket) -> Manifest:
        frontier, folder = bucket.frontier, _folder(bucket.frontier)
        if strays := [entry.name for entry in list_if_exists(self.storage, folder)]:
            if published := self.find(frontier):  # another closer was faster
                return published
            raise Finding(
                f"{self.storage.url(folder)} contains {strays}, but has no {MARKER} and no "
                "selection, so these objects were not created by Hourmark. Move them elsewhere; "
                "closing then continues automatically"
            )
        selection = Selection(
            attempt=bucket.manifest.attempt,
            marker=bucket.manifest.encode().decode(),
            sources=dict(bucket.sources),
        )
        with suppress(AlreadyExists):
            self.storage.write_new(selection_path(frontier), selection.model_dump_json().encode())
            return self._complete(frontier, selection)
        return self._complete(frontier, self._read_selection(frontier))

    def _complete(self, frontier: Frontier, selection: Selection) -> Manifest:
        # Every step may have been executed before, or is being executed by another closer.
        folder, marker = _folder(frontier), selection.marker.encode()
        manifest = decode_manifest(self.storage, frontier.event_type, frontier.hour, marker)
        found = self._list_files(folder)
        missing = [file.name for file in manifest.files if file.name not in found]
        try:
            for _ in map_concurrently(
                lambda name: self.storage.copy_file(selection.sources[name], f"{folder}/{name}"),
                missing,
            ):
                pass
        except NotFound as error:
            if published := find_manifest(self.storage, frontier.event_type, frontier.hour):
                return published  # another closer has completed it and deleted the sources
            raise Finding(
                f"{error.url} does not exist, but {self.storage.url(selection_path(frontier))} "
                "selects it. Restore the file. If that is impossible, delete the selection and "
                f"{self.storage.url(folder)}; the hour is then written again"
            ) from error
        found, wanted = self._list_files(folder), {file.name: file.bytes for file in manifest.files}
        if found != wanted:
            raise Finding(
                f"{self.storage.url(folder)} contains {found}, but its selection lists {wanted}. "
                "Move objects that are not listed elsewhere, and delete those with another size; "
                "closing then continues automatically"
            )
        self._mark(f"{folder}/{MARKER}", marker)
        self._delete_sources(selection)
        return manifest

    def _mark(self, path: str, marker: bytes) -> None:
        try:
            self.storage.write_new(path, marker)
        except AlreadyExists:
            if self.storage.read(path) != marker:
                raise Finding(
                    f"{self.storage.url(path)} is not the marker of the selected attempt, so "
                    "another program created it. Move it elsewhere; closing then continues "
                    "automatically"
                ) from None

    def _delete_sources(self, selection: Selection) -> None:
        try:
            delete_all(self.storage, selection.sources.values())
        except StorageError as error:  # the bucket is published nevertheless
            _LOG.warning("files of attempt %s are deleted later: %s", selection.attempt, error)

    def _read_selection(self, frontier: Frontier) -> Selection:
        path = selection_path(frontier)
        content = self.storage.read(path)
        try:
            return Selection.model_validate_json(content)
        except ValueError as error:
            raise Finding(
                f"{self.storage.url(path)} is not a valid selection: {error}. Restore it from a "
                "copy. If there is none, and the hour has no bucket, delete it and all objects "
                f"below {self.storage.url(_folder(frontier))}; the hour is then written again"
            ) from error

    def _list_files(self, folder: str) -> dict[str, int]:
        # Sizes of all objects of a bucket by name, without the marker. Prefixes have size 0.
        return {
            entry.name: entry.size
            for entry in list_if_exists(self.storage, folder)
            if entry.name != MARKER
        }


def _folder(frontier: Frontier) -> str:
    return frontier.hour.bucket_path(frontier.event_type)
