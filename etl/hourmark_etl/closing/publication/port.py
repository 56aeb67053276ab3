"""The port through which sealed hours become buckets.

There is one implementation for storages with renames (`attempts`) and one for object stores
(`selection`). Both guarantee:

- At most one attempt becomes the bucket of an hour. Whoever publishes another attempt of the hour
  receives the manifest of the existing bucket.
- A bucket with a marker has exactly the files that its marker lists, and never changes.
- After a crash at any point, or if a response is lost, the call can be repeated by this closer or
  by another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from hourmark.errors import Finding
from hourmark.records.hours import Hour
from hourmark.records.manifest import Manifest
from hourmark_etl.closing.write.containers import WrittenHour
from hourmark_etl.model import Frontier
from hourmark_etl.storage import StorageError
from hourmark_etl.storage.paths import parent_folder


class Unwritable(Finding):
    """Raised if a bucket cannot be published unless an operator overrides the problem.

    Some rows cannot be written, or a check requires an older bucket that cannot be read. An
    operator's override closes the bucket without these rows or checks.
    """


class PublishFailure(NamedTuple):
    """An hourly bucket that could not be published, or whose state on storage is unknown.

    Attributes:
        frontier: Event type and hour of the bucket.
        error: The error that prevented the publication or the check of storage.
    """

    frontier: Frontier
    error: Finding | StorageError


@dataclasses.dataclass(frozen=True)
class PreparedBucket:
    """A bucket of an attempt that can be published.

    Attributes:
        frontier: Event type and hour of the bucket.
        manifest: Manifest of the bucket.
        sources: Paths of the attempt's files by their names in the bucket; empty if the files have
            these names already.
    """

    frontier: Frontier
    manifest: Manifest
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)


class BucketPublication(Protocol):
    """Publishes the buckets of attempts on one storage. Instances are immutable and thread-safe.

    Attributes:
        can_select_deleted: Whether a closer that was paused, or a request that was delayed, can
            still choose an attempt after its files have been deleted. If so, delete the attempts
            that `list_attempts` returned only if the ledger, read after the call, has no sealed
            hour: each hour that they contain then has a bucket. Otherwise, the paused closer only
            fails, and attempts can be deleted at any time.
    """

    can_select_deleted: ClassVar[bool]

    def prepare(
        self, frontier: Frontier, written_hour: WrittenHour, manifest: Manifest
    ) -> PreparedBucket:
        """Verify the files of a bucket and make it ready for publication.

        Nothing is visible to readers. Buckets can be prepared in any order and concurrently.

        Args:
            frontier: Event type and hour of the bucket. The hour must be sealed, which means that
                the content of the bucket is fixed.
            written_hour: The files of the bucket.
            manifest: The manifest of the bucket. Its attempt must not have prepared this bucket
                before.

        Returns:
            The bucket to pass to `publish`.

        Raises:
            Unwritable: Some rows cannot be written. An operator's override can close the hour
                without them.
            Finding: The files or their sizes differ from what was written.
            StorageError: A storage operation failed.
        """

    def publish(
        self, buckets: Sequence[PreparedBucket], *, is_folder_complete: bool
    ) -> Iterator[Manifest]:
        """Publish prepared buckets of one event type and one parent folder, in order.

        Each marker names the one before it. Therefore, if a yielded manifest is not the one of the
        bucket, stop the iteration: the later buckets must not be published.

        Args:
            buckets: At least one bucket, in the order of their hours.
            is_folder_complete: Whether these are all buckets that the attempt has prepared in their
                parent folder, and the folder probably does not exist yet. They may then be
                published together.

        Yields:
            The manifest of each published bucket. If another attempt was first, this is its
            manifest, and the caller must check it.

        Raises:
            Finding: Other objects are where the bucket belongs, or the bucket cannot be completed.
            StorageError: A storage operation failed. It is unknown whether the bucket is published.
        """

    def find(self, frontier: Frontier) -> Manifest | None:
        """Return the manifest of the published bucket of an hour, whichever attempt published it.

        A publication that was interrupted after its attempt had been chosen is completed first.

        Args:
            frontier: Event type and hour of the bucket. The hour must be sealed.

        Returns:
            The manifest; None if no attempt was published.

        Raises:
            Finding: The marker is invalid, or the bucket cannot be completed.
            StorageError: A storage operation failed.
        """

    def complete_interrupted(self) -> list[Manifest]:
        """Complete all publications that were interrupted after an attempt had been chosen.

        Call this method before the ledger is compared with the buckets on storage, and before a
        lost ledger is rebuilt. Afterwards, each chosen attempt has a marker. The ledger is not
        needed, and other closers may do the same at the same time. With renames, nothing can be
        interrupted after the choice.

        If a bucket cannot be completed, an error is logged. The closer tries again when it comes to
        the hour, and only its type waits.

        Returns:
            The manifests of the buckets for which an attempt still exists, including buckets that
            were already complete. Empty if there are none.

        Raises:
            StorageError: A storage operation failed.
        """
        return []

    def list_attempts(self) -> list[str]:
        """Return the paths to delete in order to delete all attempts that exist now.

        See `can_select_deleted` for when they may be deleted.
        """

    def delete_attempt(self, attempt: str, *, is_closed: bool) -> None:
        """Delete the files of an attempt of this closer after its round.

        Args:
            attempt: Id of the attempt.
            is_closed: Whether each hour for which the attempt wrote files has a published bucket.
        """


def check_publishable(written_hour: WrittenHour) -> None:
    """Raise an error if the files of an hour must not be published.

    Args:
        written_hour: The files of a bucket.

    Raises:
        Unwritable: Some rows cannot be written.
        Finding: The files differ from what was written, or their rows from what was listed.
    """
    if written_hour.publish_error:
        raise Finding(written_hour.publish_error)
    if written_hour.unwritable:
        raise Unwritable(
            f"{written_hour.unwritable}. To close the hour without these rows, use `hourmark "
            "bucket force`; the marker then records the omission"
        )


def bucket_parent(event_type: str, hour: Hour) -> str:
    """Return the path of the folder that contains the bucket folders of one day.

    If buckets are shorter than an hour, there is one such folder for each hour.

    Args:
        event_type: Event type of the bucket.
        hour: Hour of the bucket.

    Returns:
        Path of the parent folder of the bucket, relative to the storage root.
    """
    return parent_folder(hour.bucket_path(event_type))
