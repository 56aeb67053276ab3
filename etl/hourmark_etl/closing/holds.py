"""Tracks which event types are paused, why, and until when. Pure: the caller passes the time.

A paused type is skipped until its pause ends; all other types continue. The reason is kept after
the pause, so that operators see it (`hourmark bucket why`) until the hour is sealed or closed. The
state is kept in memory only. After a restart, each condition is detected again.
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
    """Reason why the next hourly bucket of an event type cannot be closed at present.

    Attributes:
        hour: Hour of the bucket.
        phase: The step of closing that failed or has not completed.
        what: Human-readable descriptions of the causes.
    """

    hour: Hour
    phase: ClosingPhase
    what: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """Pause in closing the buckets of one event type, after a failed attempt.

    Attributes:
        reason: Why the next bucket cannot be closed; None if the cause was removed.
        not_before_s: Earliest time of the next attempt, in seconds of the monotonic clock.
        pause_s: Length of the last pause that `hold_with_backoff` set, in seconds.
    """

    reason: HoldReason | None = None
    not_before_s: float = 0.0
    pause_s: float = RETRY_SECONDS


_NO_HOLD: Final = Hold()


class ClosingHolds:
    """Registry of the event types whose buckets cannot be closed at present.

    For each type, it stores the reason for the last failure, which operators can see, and the end
    of the pause during which the type is skipped. It also stores which staged files (copies of
    Kafka records) could not be restored, and which types could not be checked at startup. The state
    is kept in memory only. Not thread-safe.
    """

    def __init__(self) -> None:
        self._by_type: dict[str, Hold] = {}
        self._restaged: set[str] = set()
        self._unrestorable: set[str] = set()
        self._unchecked: frozenset[str] = frozenset()

    def hold(self, event_type: str, reason: HoldReason, now_s: float) -> None:
        """Pause an event type for 10 seconds (`RETRY_SECONDS`) after a failure.

        Use this method for failures that are probably temporary.

        Args:
            event_type: Event type to pause.
            reason: Why the next bucket cannot be closed. It replaces an earlier reason.
            now_s: Current time of the monotonic clock, in seconds.
        """
        self._change(event_type, reason=reason, not_before_s=now_s + RETRY_SECONDS)

    def hold_with_backoff(self, event_type: str, reason: HoldReason, now_s: float) -> None:
        """Pause an event type with exponential backoff after a failure that needs an operator.

        The first pause is 20 seconds. Each further call doubles the pause, up to 600 seconds
        (`PAUSE_SECONDS_MAX`), because every retry repeats expensive work. `release` resets the
        backoff.

        Args:
            event_type: Event type to pause.
            reason: Why the next bucket cannot be closed. It replaces an earlier reason.
            now_s: Current time of the monotonic clock, in seconds.
        """
        pause_s = min(2 * self._of(event_type).pause_s, PAUSE_SECONDS_MAX)
        self._change(event_type, reason=reason, not_before_s=now_s + pause_s, pause_s=pause_s)

    def allow_retry(self, event_type: str) -> None:
        """End the pause of an event type, so that its next bucket is tried again immediately.

        The reason and the backoff are kept. If the type is not paused, nothing is done.

        Args:
            event_type: Event type to try again.
        """
        if event_type in self._by_type:
            self._change(event_type, not_before_s=0.0)

    def resolve(self, event_type: str) -> None:
        """Remove the reason why the next bucket of an event type cannot be closed.

        A current pause continues. If the type has no reason, nothing is done.

        Args:
            event_type: Event type whose failure was resolved.
        """
        if event_type in self._by_type:
            self._change(event_type, reason=None)

    def release(self, event_type: str) -> None:
        """End the pause of an event type, remove its reason, and reset its backoff.

        Call this method after a bucket of the type has been closed.

        Args:
            event_type: Event type of the closed bucket.
        """
        self._by_type.pop(event_type, None)

    def is_due(self, event_type: str, now_s: float) -> bool:
        """Return whether an event type is not paused.

        Args:
            event_type: Event type to check.
            now_s: Current time of the monotonic clock, in seconds.

        Returns:
            False while the type is paused after a failure; otherwise True.
        """
        return now_s >= self._of(event_type).not_before_s

    def reason(self, event_type: str) -> HoldReason | None:
        """Return why the next bucket of an event type cannot be closed.

        Args:
            event_type: Event type to look up.

        Returns:
            The reason for the last failure, even if the pause has ended; None if there is none.
        """
        return self._of(event_type).reason

    @property
    def reasons(self) -> Mapping[str, HoldReason]:
        """Return the reason for each event type whose next bucket cannot be closed.

        A type is included until its reason is removed, even if its pause has ended.
        """
        return {t: hold.reason for t, hold in self._by_type.items() if hold.reason is not None}

    def add_restaged_file(self, path: str) -> None:
        """Record a staged file that was created again from Kafka to replace an unreadable one.

        Args:
            path: Path of the new file, relative to the storage root.
        """
        self._restaged.add(path)

    def is_restaged(self, path: str) -> bool:
        """Return whether a staged file was created again to replace an unreadable one.

        A staged file contains records that were copied from Kafka.

        Args:
            path: Path of the file, relative to the storage root.

        Returns:
            True if `add_restaged_file` was called with this path since the process started.
        """
        return path in self._restaged

    def add_unrestorable_file(self, path: str) -> None:
        """Record an unreadable staged file that could not be created again from Kafka.

        Args:
            path: Path of the file, relative to the storage root.
        """
        self._unrestorable.add(path)

    @property
    def unrestorable_files(self) -> Collection[str]:
        """Return the paths of unreadable staged files that could not be created again from Kafka.

        These are all paths that have been passed to `add_unrestorable_file` since the process
        started.
        """
        return self._unrestorable

    def set_unchecked_types(self, event_types: Collection[str]) -> None:
        """Set the event types whose buckets on storage could not be checked at startup.

        The startup check compares the buckets on storage with the ledger (the ETL's state
        database).

        Args:
            event_types: The unchecked types, which replace the current ones; empty if all types
                were checked.
        """
        self._unchecked = frozenset(event_types)

    def remove_unchecked_types(self, event_types: Collection[str]) -> None:
        """Remove event types whose buckets on storage have been checked since startup.

        Args:
            event_types: Event types to remove. Types that are not in the set are ignored.
        """
        self._unchecked -= frozenset(event_types)

    @property
    def unchecked_types(self) -> Collection[str]:
        """Return the event types whose buckets on storage have not been checked yet.

        No bucket of these types is closed until the check has been made. Empty if all types have
        been checked.
        """
        return self._unchecked

    def _of(self, event_type: str) -> Hold:
        return self._by_type.get(event_type, _NO_HOLD)

    def _change(self, event_type: str, **changes: object) -> None:
        hold = self._of(event_type)
        self._by_type[event_type] = dataclasses.replace(hold, **changes)  # type: ignore[arg-type]
