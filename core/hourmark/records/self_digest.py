"""The digest that a record of a bucket contains of itself.

The field `software` of the record ends with ` blake2b=` and the digest of the whole record (16
bytes) in hex. The digest is computed with 32 zeros in its own place, so a reader detects a damaged
record without any other file.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, Protocol, Self, TypeVar

SOFTWARE_CHARS_MAX: Final = (
    40  # without a digest: a longer text must have one, even if it is damaged
)
_OWN_DIGEST: Final = re.compile(rb'"software": ?"[^"\\]* blake2b=([0-9a-f]{32})"')
_BLANK: Final = b"0" * 32  # replaces the digest while it is computed


class _Record(Protocol):
    @property
    def software(self) -> str: ...

    def encode(self) -> bytes: ...

    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self: ...


_RecordType = TypeVar("_RecordType", bound=_Record)


@functools.cache
def software_name() -> str:
    """Return the name and version of this software, the start of a record's field `software`."""
    return f"hourmark {version('hourmark')}"  # reads a file


def compute_record_digest(content: bytes) -> str:
    """Return the BLAKE2b digest of a record (16 bytes) in hex."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def add_own_digest(record: _RecordType) -> _RecordType:
    """Return a copy of a record whose field `software` ends with the digest of the record.

    Call this function once, after all other fields are set.

    Args:
        record: Record without a digest. It must be encoded as JSON with `": "` or `":"` after the
            name of a field.
    """
    blank = record.model_copy(update={"software": f"{record.software} blake2b={_BLANK.decode()}"})
    digest = compute_record_digest(blank.encode())
    return record.model_copy(update={"software": f"{record.software} blake2b={digest}"})


def check_own_digest(content: bytes) -> None:
    """Check that an encoded record matches the digest at the end of its field `software`.

    Args:
        content: The encoded record. It must contain a digest.

    Raises:
        ValueError: The record has no digest, or was changed after it was written. Restore it from a
            copy.
    """
    own = _OWN_DIGEST.search(content, max(content.rfind(b'"software"'), 0))
    if (
        own is None
        or compute_record_digest(content[: own.start(1)] + _BLANK + content[own.end(1) :])
        != own[1].decode()
    ):
        raise ValueError(
            "it was changed after it was written: its content does not match its own digest; "
            "restore it from a copy"
        )
