"""One bearer token.

Its text is `hmk_<id>_<secret>`: found by scanners for leaked secrets, and by its id without the
secret.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from fnmatch import fnmatchcase
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

_ID: Final = r"[0-9a-f]{16}"
_TEXT: Final = re.compile(rf"hmk_({_ID})_[A-Za-z0-9_-]{{43}}", re.ASCII)
_SECRET_BYTES: Final = 32
_PATTERNS_MAX: Final = 1000
NO_SECRET: Final = "0" * 64  # the digest of no text that is known

TokenId = Annotated[str, Field(pattern=f"^{_ID}$")]
Pattern = Annotated[str, Field(min_length=1, max_length=255)]
Patterns = Annotated[tuple[Pattern, ...], Field(max_length=_PATTERNS_MAX)]
Milliseconds = Annotated[int, Field(ge=0, lt=1 << 63)]
Rate = Annotated[int, Field(ge=1, lt=1 << 53)]


class Token(BaseModel):
    """A token as the topic has it.

    Fields that are not known are refused: they may narrow what it covers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: TokenId
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$", repr=False)]
    name: Annotated[str, Field(min_length=1, max_length=255)]
    types: Patterns = ("*",)
    hosts: Patterns = ("*",)
    host_ids: Patterns = ()
    reports: Patterns | None = None
    """names of hosts whose tailers may report with it; None: created by 0.3.0 or earlier, which did not ask"""
    service_reports: Patterns = ()
    """names of delivery services that may report with it"""
    created_at_ms: Milliseconds
    expires_at_ms: Milliseconds | None = None
    bytes_per_second: Rate | None = None
    events_per_second: Rate | None = None
    revoked_at_ms: Milliseconds | None = None

    @property
    def revoked(self) -> bool:
        """Whether it is refused for ever."""
        return self.revoked_at_ms is not None

    def expired(self, now_ms: int) -> bool:
        """Whether its time is over, by the clock of whoever asks."""
        return self.expires_at_ms is not None and now_ms >= self.expires_at_ms

    def covers_type(self, event_type: str) -> bool:
        """Whether events of this type may be posted with it."""
        return _fits(event_type, self.types)

    def covers_host(self, name: str, host_id: str) -> bool:
        """Return whether ranges of this host may be posted with it."""
        return _fits(name, self.hosts) and self._covers_id(host_id)

    def covers_report(self, kind: str, name: str, host_id: str) -> bool:
        """Return whether a host report may be posted with it.

        `kind`: of the host, `tailer` or `service`.

        A token of 0.3.0 or earlier covers the tailers of its hosts, so that they go on reporting
        after an upgrade.
        """
        if kind == "service":
            return _fits(name, self.service_reports) and self._covers_id(host_id)
        return _fits(
            name, self.hosts if self.reports is None else self.reports
        ) and self._covers_id(host_id)

    def _covers_id(self, host_id: str) -> bool:
        return not self.host_ids or host_id in self.host_ids

    def revoke(self, now_ms: int) -> Token:
        """The same, refused from now on; one that is revoked stays as it is."""
        return self if self.revoked else self.model_copy(update={"revoked_at_ms": now_ms})

    def to_json(self) -> str:
        """Return the value of its record; the key is its id. 0.3.0 reads what it wrote itself,
        revoked or not.
        """
        return self.model_dump_json(
            exclude={"reports", "service_reports"} if self.reports is None else None
        )

    @classmethod
    def from_json(cls, key: str, text: bytes) -> Token:
        """The inverse; ValueError says what is wrong."""
        token = cls.model_validate_json(text)
        if token.id != key:
            raise ValueError(f"the record of {key} holds the token {token.id}")
        return token


class NewToken(NamedTuple):
    """A token, and its text, which is kept nowhere."""

    token: Token
    text: str


def new_token(
    name: str,
    now_ms: int,
    *,
    types: tuple[str, ...] = ("*",),
    hosts: tuple[str, ...] = ("*",),
    host_ids: tuple[str, ...] = (),
    reports: tuple[str, ...] = (),
    service_reports: tuple[str, ...] = (),
    expires_at_ms: int | None = None,
    bytes_per_second: int | None = None,
    events_per_second: int | None = None,
) -> NewToken:
    """Return a new token.

    Args:
        reports: Names of hosts, or patterns of them, whose tailers may report with it.
        service_reports: Likewise of delivery services.

    Raises: ValueError: If a value is not allowed. A pattern of reports must name hosts: `*` alone
        is refused without host ids.
    """
    for pattern in (*reports, *service_reports):
        if not (host_ids or pattern.strip("*?")):
            raise ValueError(
                f"reports of {pattern!r} would be those of every host: name them "
                "(`web-*`), or give their host ids"
            )
    token_id = secrets.token_hex(8)
    text = f"hmk_{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    token = Token(
        id=token_id,
        digest=token_digest(text),
        name=name,
        types=types,
        hosts=hosts,
        host_ids=host_ids,
        reports=reports,
        service_reports=service_reports,
        created_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
        bytes_per_second=bytes_per_second,
        events_per_second=events_per_second,
    )
    return NewToken(token, text)


def parse_token_id(text: str) -> str | None:
    """The id that a token's text names; None where it has not a token's form."""
    form = _TEXT.fullmatch(text)
    return form[1] if form else None


def token_digest(text: str) -> str:
    """What is kept of a token's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def verify_token(token: Token | None, text: str) -> bool:
    """Whether this is the token's text, in a time that tells nothing of it, nor whether there is
    such a token.
    """
    same = hmac.compare_digest(token_digest(text), token.digest if token is not None else NO_SECRET)
    return same and token is not None


def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
