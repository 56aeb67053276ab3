"""The rejection of a line: an exception that becomes a dead letter."""

from __future__ import annotations

from hourmark.records.dead_letters import DeadLetterReason


class Rejected(Exception):
    """A line is not a valid event and must be stored as a dead letter.

    A dead letter is a record with the line and the reason. The exception is caught within the
    parsing package.

    Attributes:
        reason: Machine-readable reason.
        detail: Human-readable explanation, which may quote the line.
        claimed_type: Event type that the line names, or None if unknown.
        field: Field of the event type that is missing or invalid, or None.
        key: Key in the payload that is not a field of the type, or None.
    """

    def __init__(
        self,
        reason: DeadLetterReason,
        detail: str,
        claimed_type: str | None = None,
        field: str | None = None,
        *,
        key: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.claimed_type = claimed_type
        self.field = field  # of the type's, that was wrong
        # of the payload, that is no field of the type's; only the sender of a batch gets it
        self.key = key
