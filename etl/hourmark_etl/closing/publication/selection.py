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
from typing import ClassVar, Final

from hourmark.errors import Finding
from hourmark.records.manifest import MARKER, Manifest
from hourmark_etl.buckets.reader import decode_manifest, find_closed_manifest, list_bucket_files
from hourmark_etl.buckets.selections import (
    SelectedHour,
    Selection,
    find_selection,
    record_path,
    recorded_hours,
    selection_path,
)
from hourmark_etl.closing.bucket_manifest import name_bucket_files
from hourmark_etl.closing.publication.port import (
    BucketPublication,
    PreparedBucket,
    check_publishable,
)
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
from hourmark_etl.storage.folders import ATTEMPTS_FOLDER

_LOG: Final = logging.getLogger(__name__)


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
        record = record_path(frontier.event_type, frontier.hour, manifest.attempt)
        self.storage.write_new(record, manifest.encode())
        sources, wanted = name_bucket_files(written_hour.files), manifest.file_sizes
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
        return self._find(SelectedHour(frontier.event_type, frontier.hour))

    def complete_interrupted(self) -> list[Manifest]:
        completed = []
        for hour in recorded_hours(self.storage):
            try:
                manifest = self._find(hour)
            except Finding as error:
                _LOG.error("%s", error)
                continue
            if manifest is not None:
                completed.append(manifest)
        return completed

    def list_attempts(self) -> list[str]:
        return [
            f"{ATTEMPTS_FOLDER}/{entry.name}"
            for entry in list_if_exists(self.storage, ATTEMPTS_FOLDER)
        ]

    def delete_attempt(self, attempt: str, *, is_closed: bool) -> None:
        if is_closed:
            self.storage.delete(f"{ATTEMPTS_FOLDER}/{attempt}")

    def _find(self, bucket: SelectedHour) -> Manifest | None:
        if published := find_closed_manifest(self.storage, *bucket):
            return published
        selection = find_selection(self.storage, *bucket)
        return None if selection is None else self._complete(bucket, selection)

    def _size(self, path: str) -> int:
        try:
            return self.storage.size(path)
        except NotFound:
            return -1

    def _select(self, prepared: PreparedBucket) -> Manifest:
        bucket = SelectedHour(prepared.frontier.event_type, prepared.frontier.hour)
        if strays := [entry.name for entry in list_if_exists(self.storage, _folder(bucket))]:
            if published := self._find(bucket):  # another closer was faster
                return published
            raise Finding(
                f"{self.storage.url(_folder(bucket))} contains {strays}, but has no {MARKER} and no "
                "selection, so these objects were not created by Hourmark. Move them elsewhere; "
                "closing then continues automatically"
            )
        selection = Selection(
            attempt=prepared.manifest.attempt,
            marker=prepared.manifest.encode().decode(),
            sources=dict(prepared.sources),
        )
        with suppress(AlreadyExists):
            self.storage.write_new(selection_path(*bucket), selection.model_dump_json().encode())
            return self._complete(bucket, selection)
        existing = find_selection(self.storage, *bucket)
        if existing is None:
            raise Finding(
                f"{self.storage.url(selection_path(*bucket))} existed a moment ago, but cannot be "
                "found. Do not delete selections; closing continues automatically"
            )
        return self._complete(bucket, existing)

    def _complete(self, bucket: SelectedHour, selection: Selection) -> Manifest:
        # Every step may have been executed before, or is being executed by another closer.
        folder, marker = _folder(bucket), selection.marker.encode()
        manifest = decode_manifest(self.storage, *bucket, marker)
        wanted = manifest.file_sizes
        missing = sorted(wanted.keys() - self._list_files(folder))
        try:
            for _ in map_concurrently(
                lambda name: self.storage.copy_file(selection.sources[name], f"{folder}/{name}"),
                missing,
            ):
                pass
        except NotFound as error:
            if published := find_closed_manifest(self.storage, *bucket):
                return published  # another closer has completed it and deleted the sources
            raise Finding(
                f"{error.url} does not exist, but {self.storage.url(selection_path(*bucket))} "
                "selects it. Restore the file. If that is impossible, delete the selection and "
                f"{self.storage.url(folder)}; the hour is then written again"
            ) from error
        if (found := self._list_files(folder)) != wanted:
            raise Finding(
                f"{self.storage.url(folder)} contains {found}, but its selection lists {wanted}. "
                "Move objects that are not listed elsewhere, and delete those with another size; "
                "closing then continues automatically"
            )
        self._mark(f"{folder}/{MARKER}", marker)
        self._delete_sources(bucket, selection)
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

    def _delete_sources(self, bucket: SelectedHour, selection: Selection) -> None:
        # The record is deleted last: without it, nobody would look for the selection.
        try:
            delete_all(self.storage, selection.sources.values())
            self.storage.delete(record_path(*bucket, selection.attempt))
        except StorageError as error:  # the bucket is published nevertheless
            _LOG.warning("files of attempt %s are deleted later: %s", selection.attempt, error)

    def _list_files(self, folder: str) -> dict[str, int]:
        # Sizes of all objects of a bucket by name, without the marker. Prefixes have size 0.
        try:
            found = list_bucket_files(self.storage, folder)
        except NotFound:
            return {}
        return {name: size for name, size in found.items() if name != MARKER}


def _folder(bucket: SelectedHour) -> str:
    return bucket.hour.bucket_path(bucket.event_type)
