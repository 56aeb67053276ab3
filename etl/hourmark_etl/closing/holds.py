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
    """What the next hour of an event type waits for.

    Attributes:
        hour: The hour.
        phase: Phase of closing that is blocked.
        what: Causes, human-readable.
    """

    hour: Hour
    phase: ClosingPhase
    what: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """The hold of one event type.

    Attributes:
        reason: Why the type is or was held; None if the reason was resolved.
        not_before_s: When closing tries the type again, on the monotonic clock.
        pause_s: Length of the last growing pause, in seconds.
    """

    reason: HoldReason | None = None
    not_before_s: float = 0.0
    pause_s: float = RETRY_SECONDS


_NO_HOLD: Final = Hold()


class ClosingHolds:
    """The holds of all event types, and the conditions on storage that cause new ones."""

    def __init__(self) -> None:
        self._by_type: dict[str, Hold] = {}
        self._restaged: set[str] = set()
        self._unrestorable: set[str] = set()
        self._unchecked: frozenset[str] = frozenset()

    def hold(self, event_type: str, reason: HoldReason, now_s: float) -> None:
        """Hold a type for `RETRY_SECONDS`.

        Args:
            event_type: Event type.
            reason: Replaces the reason of an earlier hold.
            now_s: Current time on the monotonic clock, in seconds.
        """
        self._change(event_type, reason=reason, not_before_s=now_s + RETRY_SECONDS)

    def hold_longer(self, event_type: str, reason: HoldReason, now_s: float) -> None:
        """Hold a type for twice its last growing pause, at most `PAUSE_SECONDS_MAX`.

        For conditions that need an operator: each poll finds only one such file or row, and would
        repeat all work before it.

        Args:
            event_type: Event type.
            reason: Replaces the reason of an earlier hold.
            now_s: Current time on the monotonic clock, in seconds.
        """
        pause_s = min(2 * self._of(event_type).pause_s, PAUSE_SECONDS_MAX)
        self._change(event_type, reason=reason, not_before_s=now_s + pause_s, pause_s=pause_s)

    def end_pause(self, event_type: str) -> None:
        """Let closing try a type at once; the reason stays."""
        if event_type in self._by_type:
            self._change(event_type, not_before_s=0.0)

    def resolve(self, event_type: str) -> None:
        """Remove the reason of a hold; a running pause continues."""
        if event_type in self._by_type:
            self._change(event_type, reason=None)

    def release(self, event_type: str) -> None:
        """Forget everything about a type, because its hour was closed."""
        self._by_type.pop(event_type, None)

    def is_due(self, event_type: str, now_s: float) -> bool:
        """Return whether no pause of the type is running."""
        return now_s >= self._of(event_type).not_before_s

    def reason(self, event_type: str) -> HoldReason | None:
        """Return why a type is held, or None."""
        return self._of(event_type).reason

    @property
    def reasons(self) -> Mapping[str, HoldReason]:
        """The reason of each held type, also after its pause."""
        return {t: hold.reason for t, hold in self._by_type.items() if hold.reason is not None}

    def add_restaged_file(self, path: str) -> None:
        """Record the path of a file that was staged again."""
        self._restaged.add(path)

    def is_restaged(self, path: str) -> bool:
        """Return whether the file is itself one that was staged again."""
        return path in self._restaged

    def add_unrestorable_file(self, path: str) -> None:
        """Record the path of a staged file that could not be staged again."""
        self._unrestorable.add(path)

    @property
    def unrestorable_files(self) -> Collection[str]:
        """The paths of staged files that could not be staged again."""
        return self._unrestorable

    def set_unchecked_types(self, event_types: Collection[str]) -> None:
        """Replace the types whose buckets on storage could not be checked after a start."""
        self._unchecked = frozenset(event_types)

    def remove_unchecked_types(self, event_types: Collection[str]) -> None:
        """Remove types whose buckets on storage have been checked."""
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
