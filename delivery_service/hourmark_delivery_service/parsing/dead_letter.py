"""Dead letters in the fields that a rules revision declares for them, be they fewer or more than this release's own.

A revision of an earlier release lacks fields of today, and they are left out. One of a later release has further fields, and
they take their defaults; without a default, or where a field does not take what is written into it, the revision is unusable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hourmark.dead_letters import FIELDS, Reason
from hourmark_delivery_service.parsing.primitives import Encoder, Mismatch, encoded

_LONG_MAX: Final = (1 << 63) - 1

# All that is ever written into a field lies between these; a type that takes them takes it.
_EXTREMES: Final[Mapping[str, tuple[Any, ...]]] = {
    "reason": tuple(reason.value for reason in Reason),
    "detail": ("", "\U0010ffff" * 500),
    "claimed_type": (None, "a", "a" * 255),
    "raw": (b"", bytes(range(256))),
    "range_id": (bytes(8),),
    "range_start": (0, _LONG_MAX),
    "range_end": (0, _LONG_MAX),
    "rules": ("1-0", "9" * 40),
    "declared_source": ("", "\U0010ffff" * 255),
}
assert list(_EXTREMES) == [field["name"] for field in FIELDS], "what `DeadLetters.encode` is given"


class DeadLetters:
    """Writes their own fields. `header` is the framing. ValueError if this software cannot write the declared ones."""

    def __init__(self, header: bytes, fields: Sequence[tuple[str, Encoder, bytes | None]]) -> None:
        self.header = header
        self._fields = [(None if name in _EXTREMES else default, name, encode) for name, encode, default in fields]
        for name, encode, default in fields:
            _check(name, encode, default)

    def encode(self, values: Mapping[str, Any]) -> bytearray:
        """The datum of the own fields; `values` has all of today's."""
        out = bytearray()
        for default, name, encode in self._fields:
            if default is not None:
                out += default
            else:
                encode(values[name], out)
        return out


def _check(name: str, encode: Encoder, default: bytes | None) -> None:
    if name not in _EXTREMES:
        if default is None:
            raise ValueError(
                f"its dead-letters have a field {name} without a default, which this software does not know; upgrade it"
            )
        return
    for value in _EXTREMES[name]:
        try:
            encoded(encode, value)
        except Mismatch as error:
            raise ValueError(
                f"the field {name} of its dead-letters {error}, and this software writes {value!r:.40}; upgrade it"
            ) from None
