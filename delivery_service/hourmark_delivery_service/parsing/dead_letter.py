"""Dead letters in the fields that a rules revision declares for them.

A revision of an earlier release lacks some of today's fields, which are omitted. A revision of a
later release has additional fields, which take their defaults. If such a field has no default, or a
field does not accept the values written into it, the revision is unusable.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

from hourmark.records.dead_letters import FIELDS, DeadLetterReason
from hourmark_delivery_service.parsing.reject import Rejected
from hourmark_delivery_service.parsing.values.primitives import Encoder, Mismatch, encode_to_bytes

_LONG_MAX: Final = (1 << 63) - 1

# All that is ever written into a field lies between these; a type that takes them takes it.
EXTREMES: Final[Mapping[str, tuple[Any, ...]]] = {
    "reason": tuple(reason.value for reason in DeadLetterReason),
    "detail": ("", "\U0010ffff" * 500),
    "claimed_type": (None, "a", "a" * 255),
    "raw": (b"", bytes(range(256))),
    "range_id": (bytes(8),),
    "range_start": (0, _LONG_MAX),
    "range_end": (0, _LONG_MAX),
    "rules": ("1-0", "9" * 40),
    "declared_source": ("", "\U0010ffff" * 255),
}
assert list(EXTREMES) == [field["name"] for field in FIELDS], "what `Parser` gives them"

# Rejections whose details never quote the line.
_TELLS_NOTHING: Final = frozenset(
    (
        DeadLetterReason.MISSING_FIELD,
        DeadLetterReason.NO_TIMESTAMP,
        DeadLetterReason.FUTURE,
        DeadLetterReason.TOO_LATE,
        DeadLetterReason.BAD_COLUMNS,
        DeadLetterReason.EMPTY_LINE,
        DeadLetterReason.LINE_TOO_LONG,
        DeadLetterReason.EVENT_TOO_LARGE,
    )
)


def withhold_payload(
    rejection: Rejected, raw: bytes, declared_types: Container[str]
) -> tuple[Rejected, bytes]:
    """Remove all content from a dead letter that could reveal secrets in its line.

    A dead letter is the record of a line that is not a valid event. Call this function if the line
    may be of a type with redaction. Redaction patterns cannot be applied to a line that could not
    be parsed, because a secret may be escaped or in an unexpected place.

    Args:
        rejection: Reason why the line was rejected.
        raw: The line.
        declared_types: Names of the declared event types. If the line names any other type, this
            name is removed too, because it could be a secret.

    Returns:
        The rejection without quotes from the line, and an empty byte string in place of the line.
    """
    detail = rejection.detail if rejection.reason in _TELLS_NOTHING else ""
    if rejection.field is not None and not detail:
        detail = f"the field {rejection.field} is wrong"
    detail_text = (
        f"{detail}{'; ' if detail else ''}the line's {len(raw)} bytes are withheld: it may be "
        "of a type that redacts"
    )
    claimed = rejection.claimed_type if rejection.claimed_type in declared_types else None
    return Rejected(rejection.reason, detail_text, claimed, rejection.field), b""


def check_dead_letter_field(name: str, encode: Encoder, default: bytes | None) -> None:
    """Check that this software can write a field of the declared dead letter schema.

    A dead letter is the record of a line that is not a valid event.

    Args:
        name: Name of the field.
        encode: Encoder of the field.
        default: Encoded default value, or None if the field has none.

    Raises:
        ValueError: If the field is unknown and has no default, or does not accept all values that
            this software may write.
    """
    if name not in EXTREMES:
        if default is None:
            raise ValueError(
                f"its dead-letters have a field {name} without a default, which this version of "
                "Hourmark does not support; upgrade this service"
            )
        return
    for value in EXTREMES[name]:
        try:
            encode_to_bytes(encode, value)
        except Mismatch as error:
            raise ValueError(
                f"the field {name} of its dead-letters {error}, but this version of Hourmark "
                f"writes {value!r:.40}; upgrade this service"
            ) from None
