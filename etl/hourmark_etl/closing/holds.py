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
    """The reason why the next hour of an event type cannot close now.

    Attributes:
        hour: The hour.
        phase: Phase of closing that is blocked.
        what: Readable causes.
    """

    hour: Hour
    phase: ClosingPhase
    what: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """The pause of one event type: closing does not try the type again before a given time.

    Attributes:
        reason: Why the type cannot close; None if the reason no longer applies.
        not_before_s: Time of the next try, in seconds of the monotonic clock.
        pause_s: Length of the last pause that `hold_with_backoff` set, in seconds.
    """

    reason: HoldReason | None = None
    not_before_s: float = 0.0
    pause_s: float = RETRY_SECONDS


_NO_HOLD: Final = Hold()


class ClosingHolds:
    """The event types that closing does not try for a while after a failure, and why.

    It also stores which staged files could not be restored, and which types have buckets that could
    not be checked. Everything is kept in memory only. An instance is not thread-safe.
    """

    def __init__(self) -> None:
        self._by_type: dict[str, Hold] = {}
        self._restaged: set[str] = set()
        self._unrestorable: set[str] = set()
        self._unchecked: frozenset[str] = frozenset()

    def hold(self, event_type: str, reason: HoldReason, now_s: float) -> None:
        """Do not try to close a type for `RETRY_SECONDS` (10 seconds).

        Args:
            event_type: Event type.
            reason: Why the type cannot close. It replaces an earlier reason.
            now_s: Current time of the monotonic clock, in seconds.
        """
        self._change(event_type, reason=reason, not_before_s=now_s + RETRY_SECONDS)

    def hold_with_backoff(self, event_type: str, reason: HoldReason, now_s: float) -> None:
        """Do not try to close a type for twice as long as after the last call of this method.

        The first pause takes 20 seconds, and the longest one `PAUSE_SECONDS_MAX` (600 seconds). Use
        this method for failures that an operator must repair, because every further try repeats
        expensive work.

        Args:
            event_type: Event type.
            reason: Why the type cannot close. It replaces an earlier reason.
            now_s: Current time of the monotonic clock, in seconds.
        """
        pause_s = min(2 * self._of(event_type).pause_s, PAUSE_SECONDS_MAX)
        self._change(event_type, reason=reason, not_before_s=now_s + pause_s, pause_s=pause_s)

    def allow_retry(self, event_type: str) -> None:
        """End the pause of a type, so that the next poll tries to close it; its reason is kept."""
        if event_type in self._by_type:
            self._change(event_type, not_before_s=0.0)

    def resolve(self, event_type: str) -> None:
        """Remove the reason why a type cannot close; a running pause continues."""
        if event_type in self._by_type:
            self._change(event_type, reason=None)

    def release(self, event_type: str) -> None:
        """Remove the pause and the reason of a type, and reset the length of its next pause.

        Call it after an hour of the type was closed.
        """
        self._by_type.pop(event_type, None)

    def is_due(self, event_type: str, now_s: float) -> bool:
        """Return whether closing may try the type now: it has no pause, or the pause has ended."""
        return now_s >= self._of(event_type).not_before_s

    def reason(self, event_type: str) -> HoldReason | None:
        """Return why a type cannot close; None if there is no reason."""
        return self._of(event_type).reason

    @property
    def reasons(self) -> Mapping[str, HoldReason]:
        """The reason of each type that cannot close, by event type, even if its pause has ended."""
        return {t: hold.reason for t, hold in self._by_type.items() if hold.reason is not None}

    def add_restaged_file(self, path: str) -> None:
        """Record the path of a new staged file that replaces an unreadable one."""
        self._restaged.add(path)

    def is_restaged(self, path: str) -> bool:
        """Return whether the path was recorded by `add_restaged_file`."""
        return path in self._restaged

    def add_unrestorable_file(self, path: str) -> None:
        """Record the path of an unreadable staged file that could not be restored from Kafka."""
        self._unrestorable.add(path)

    @property
    def unrestorable_files(self) -> Collection[str]:
        """The paths of unreadable staged files that could not be restored from Kafka."""
        return self._unrestorable

    def set_unchecked_types(self, event_types: Collection[str]) -> None:
        """Replace the set of types whose buckets on storage could not be checked after a start."""
        self._unchecked = frozenset(event_types)

    def remove_unchecked_types(self, event_types: Collection[str]) -> None:
        """Remove types whose buckets on storage have been checked in the meantime."""
        self._unchecked -= frozenset(event_types)

    @property
    def unchecked_types(self) -> Collection[str]:
        """The types whose buckets on storage must be checked before their next hour is closed."""
        return self._unchecked

    def _of(self, event_type: str) -> Hold:
        return self._by_type.get(event_type, _NO_HOLD)

    def _change(self, event_type: str, **changes: object) -> None:
        hold = self._of(event_type)
        self._by_type[event_type] = dataclasses.replace(hold, **changes)  # type: ignore[arg-type]
