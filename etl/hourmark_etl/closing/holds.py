"""Which event types the closer holds, why, and until when. Pure: the caller passes the time.

A held type is skipped until its pause ends; all other types continue. The reason of a hold outlasts
the pause, so that operators see it (`hourmark bucket why`) until the hour is sealed or closed. The
state is lost with the process, after which each condition is found again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from hourmark.records.hours import Hour
from hourmark_etl.model import ClosingPhase

RETRY_SECONDS: Final = 10.0  # after a failed proof, because missing records may still arrive
PAUSE_SECONDS_MAX: Final = 600.0  # after a staged file that cannot be restored without an operator


class HoldReason(NamedTuple):
    """The reason why the next hourly bucket of an event type cannot be closed at present.

    Attributes:
        hour: Hour of the bucket.
        phase: The step of closing that failed or is not finished.
        what: Readable causes, each a separate text.
    """

    hour: Hour
    phase: ClosingPhase
    what: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """A pause in closing the buckets of one event type, after an attempt to close one has failed.

    Attributes:
        reason: Why no bucket can be closed; None if the cause was removed.
        not_before_s: Time of the next attempt, in seconds of the monotonic clock.
        pause_s: Length in seconds of the last pause that `hold_with_backoff` set.
    """

    reason: HoldReason | None = None
    not_before_s: float = 0.0
    pause_s: float = RETRY_SECONDS


_NO_HOLD: Final = Hold()


class ClosingHolds:
    """The event types whose buckets cannot be closed at present, with causes and pauses.

    For each type, the object stores the reason of the last failure, which is shown to operators,
    and a pause during which the closer skips the type. It also stores which staged files could not
    be read from Kafka again, and for which types buckets could not be checked at startup. The state
    is kept in memory only. Not thread-safe.
    """

    def __init__(self) -> None:
        self._by_type: dict[str, Hold] = {}
        self._restaged: set[str] = set()
        self._unrestorable: set[str] = set()
        self._unchecked: frozenset[str] = frozenset()

    def hold(self, event_type: str, reason: HoldReason, now_s: float) -> None:
        """Skip an event type for 10 seconds (`RETRY_SECONDS`) after a probably temporary failure.

        Args:
            event_type: Event type to pause.
            reason: Why the type cannot be closed. It replaces an earlier reason.
            now_s: Current time of the monotonic clock, in seconds.
        """
        self._change(event_type, reason=reason, not_before_s=now_s + RETRY_SECONDS)

    def hold_with_backoff(self, event_type: str, reason: HoldReason, now_s: float) -> None:
        """Skip an event type, with exponential backoff, after a failure that needs an operator.

        The first pause takes 20 seconds. Each further call doubles the pause, up to 600 seconds
        (`PAUSE_SECONDS_MAX`), because every retry repeats expensive work. `release` resets the
        length.

        Args:
            event_type: Event type to pause.
            reason: Why the type cannot be closed. It replaces an earlier reason.
            now_s: Current time of the monotonic clock, in seconds.
        """
        pause_s = min(2 * self._of(event_type).pause_s, PAUSE_SECONDS_MAX)
        self._change(event_type, reason=reason, not_before_s=now_s + pause_s, pause_s=pause_s)

    def allow_retry(self, event_type: str) -> None:
        """End the pause of an event type, so that the closer's next poll tries to close its bucket.

        The reason and the length of the next pause are kept. The call has no effect if the type is
        not paused.

        Args:
            event_type: Event type to try again.
        """
        if event_type in self._by_type:
            self._change(event_type, not_before_s=0.0)

    def resolve(self, event_type: str) -> None:
        """Remove the reason why the next bucket of an event type cannot be closed.

        A running pause continues. The call has no effect if the type has no reason.

        Args:
            event_type: Event type whose failure is resolved.
        """
        if event_type in self._by_type:
            self._change(event_type, reason=None)

    def release(self, event_type: str) -> None:
        """End the pause of an event type, remove its reason, and reset its backoff.

        Call it after a bucket of the type was closed.

        Args:
            event_type: Event type that was closed.
        """
        self._by_type.pop(event_type, None)

    def is_due(self, event_type: str, now_s: float) -> bool:
        """Return whether the closer may try to close a bucket of an event type now.

        Args:
            event_type: Event type to check.
            now_s: Current time of the monotonic clock, in seconds.

        Returns:
            False only while the type is paused after a failure.
        """
        return now_s >= self._of(event_type).not_before_s

    def reason(self, event_type: str) -> HoldReason | None:
        """Return why the next bucket of an event type cannot be closed.

        Args:
            event_type: Event type to look up.

        Returns:
            The reason of the last failure, even if its pause has ended; None if there is none.
        """
        return self._of(event_type).reason

    @property
    def reasons(self) -> Mapping[str, HoldReason]:
        """The reasons of all types that cannot be closed, by event type.

        Types whose pause has ended are included until their reason is removed.
        """
        return {t: hold.reason for t, hold in self._by_type.items() if hold.reason is not None}

    def add_restaged_file(self, path: str) -> None:
        """Record a staged file that was created from Kafka to replace an unreadable one.

        Args:
            path: HDFS path of the new file, relative to the storage root.
        """
        self._restaged.add(path)

    def is_restaged(self, path: str) -> bool:
        """Return whether a staged file replaces one that was unreadable.

        A staged file contains records that were copied from Kafka.

        Args:
            path: HDFS path of the file, relative to the storage root.

        Returns:
            True if `add_restaged_file` was called with this path since the process started.
        """
        return path in self._restaged

    def add_unrestorable_file(self, path: str) -> None:
        """Record an unreadable staged file that could not be created again from Kafka.

        Args:
            path: HDFS path of the file, relative to the storage root.
        """
        self._unrestorable.add(path)

    @property
    def unrestorable_files(self) -> Collection[str]:
        """The unreadable staged files that could not be created again from Kafka.

        The collection contains all paths that `add_unrestorable_file` received since the process
        started.
        """
        return self._unrestorable

    def set_unchecked_types(self, event_types: Collection[str]) -> None:
        """Store the event types for which the buckets on storage could not be checked at startup.

        At startup, a closer checks that the buckets on storage are those that the ledger (the ETL's
        state database) has closed.

        Args:
            event_types: Types with unchecked buckets; empty if all were checked. They replace all
                types that were stored before.
        """
        self._unchecked = frozenset(event_types)

    def remove_unchecked_types(self, event_types: Collection[str]) -> None:
        """Remove types whose buckets on storage have been checked since startup.

        Args:
            event_types: Event types to remove. Types that are not stored are ignored.
        """
        self._unchecked -= frozenset(event_types)

    @property
    def unchecked_types(self) -> Collection[str]:
        """The types whose buckets on storage must be checked before their next hour is closed.

        The collection is empty if all types were checked at startup or since then.
        """
        return self._unchecked

    def _of(self, event_type: str) -> Hold:
        return self._by_type.get(event_type, _NO_HOLD)

    def _change(self, event_type: str, **changes: object) -> None:
        hold = self._of(event_type)
        self._by_type[event_type] = dataclasses.replace(hold, **changes)  # type: ignore[arg-type]
