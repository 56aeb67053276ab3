"""How a line is refused: an exception that becomes its dead letter."""

from __future__ import annotations

from hourmark.records.dead_letters import DeadLetterReason


class Rejected(Exception):
    """This line can be no event.

    Carries what its dead letter says; never leaves the parsing package.
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
