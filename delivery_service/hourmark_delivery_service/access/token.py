"""A bearer token and its text form `hmk_<id>_<secret>`.

The fixed prefix lets secret scanners detect leaked tokens. The id identifies a token without its
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
    """The stored record of a bearer token: its permissions and limits, without its secret.

    Instances are immutable. A record with unknown fields is invalid, because such a field could be
    a restriction that this version does not enforce. Patterns are shell patterns with `*` and `?`.

    Attributes:
        id: Id of the token, 16 hexadecimal digits.
        digest: SHA-256 digest of the token's text, in hexadecimal.
        name: Human-readable name.
        types: Patterns of the event types that may be posted.
        hosts: Patterns of the host names whose byte ranges may be posted.
        host_ids: Ids of the permitted hosts; empty for all hosts.
        reports: Patterns of the host names whose tailers may send host reports. None if the token
            was created by version 0.3.0 or earlier, which had no such permission.
        service_reports: Patterns of the names of delivery services that may send host reports.
        created_at_ms: Creation time in Unix milliseconds.
        expires_at_ms: Expiry time in Unix milliseconds; None if the token does not expire.
        bytes_per_second: Rate limit at each service instance; None for no limit.
        events_per_second: Rate limit at each service instance; None for no limit.
        revoked_at_ms: Revocation time in Unix milliseconds; None if the token is not revoked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: TokenId
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$", repr=False)]
    name: Annotated[str, Field(min_length=1, max_length=255)]
    types: Patterns = ("*",)
    hosts: Patterns = ("*",)
    host_ids: Patterns = ()
    reports: Patterns | None = None
    # None: created by 0.3.0 or earlier, which had no such permission
    service_reports: Patterns = ()
    created_at_ms: Milliseconds
    expires_at_ms: Milliseconds | None = None
    bytes_per_second: Rate | None = None
    events_per_second: Rate | None = None
    revoked_at_ms: Milliseconds | None = None

    @property
    def revoked(self) -> bool:
        """Return whether the token has been revoked.

        A revoked token is never accepted again, regardless of its expiry time.
        """
        return self.revoked_at_ms is not None

    def expired(self, now_ms: int) -> bool:
        """Return whether the token has expired.

        Returns False if the token has no expiry time. Revocation is not checked.

        Args:
            now_ms: Current time in Unix milliseconds.
        """
        return self.expires_at_ms is not None and now_ms >= self.expires_at_ms

    def covers_type(self, event_type: str) -> bool:
        """Return whether the token permits posting events of a type.

        Args:
            event_type: Name of the event type. It must match a pattern in `types`.
        """
        return _fits(event_type, self.types)

    def covers_host(self, name: str, host_id: str) -> bool:
        """Return whether the token permits posting byte ranges of a host's files.

        Args:
            name: Host name. It must match a pattern in `hosts`.
            host_id: Host id. It must be in `host_ids` unless that is empty.
        """
        return _fits(name, self.hosts) and self._covers_id(host_id)

    def covers_report(self, kind: str, name: str, host_id: str) -> bool:
        """Return whether the token permits a component to send host reports.

        A host report states the time up to which a host has sent all its data. A token that was
        created by version 0.3.0 or earlier covers the reports of all tailers on its hosts.
        Otherwise these tailers could not report after an upgrade.

        Args:
            kind: Component that sends the report: `tailer` or `service`.
            name: Host name in the report.
            host_id: Host id in the report.
        """
        if kind == "service":
            return _fits(name, self.service_reports) and self._covers_id(host_id)
        return _fits(
            name, self.hosts if self.reports is None else self.reports
        ) and self._covers_id(host_id)

    def _covers_id(self, host_id: str) -> bool:
        return not self.host_ids or host_id in self.host_ids

    def revoke(self, now_ms: int) -> Token:
        """Return a copy of the token that is marked as revoked.

        The original object is not changed, and nothing is written to Kafka. If the token is already
        revoked, the original revocation time is kept.

        Args:
            now_ms: Revocation time in Unix milliseconds.
        """
        return self if self.revoked else self.model_copy(update={"revoked_at_ms": now_ms})

    def to_json(self) -> str:
        """Serialize the token as JSON, the value of its record in the topic `hourmark.tokens`.

        The key of the record is the token's id. If the token was created by version 0.3.0 or
        earlier, fields that are unknown to these versions are omitted.
        """
        return self.model_dump_json(
            exclude={"reports", "service_reports"} if self.reports is None else None
        )

    @classmethod
    def from_json(cls, key: str, text: bytes) -> Token:
        """Parse a token from its record in the topic `hourmark.tokens`.

        Args:
            key: Key of the record, which must be the token's id.
            text: Value of the record, as JSON.

        Raises:
            ValueError: If the value is not a valid token, or its id differs from the key.
        """
        token = cls.model_validate_json(text)
        if token.id != key:
            raise ValueError(f"the record with key {key} contains the token {token.id}")
        return token


class NewToken(NamedTuple):
    """A newly created token and its text. The text contains the secret and is not stored.

    Attributes:
        token: Record of the token, for storage.
        text: Text of the token, `hmk_<id>_<secret>`, for the client.
    """

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
    """Create a token with a random id and a random secret. The token is not stored.

    Patterns are shell patterns with `*` and `?`.

    Args:
        name: Human-readable name.
        now_ms: Creation time in Unix milliseconds.
        types: Patterns of the event types that may be posted.
        hosts: Patterns of the host names whose byte ranges may be posted.
        host_ids: Ids of the permitted hosts, or empty for all hosts.
        reports: Patterns of the host names whose tailers may send host reports.
        service_reports: Patterns of the names of delivery services that may send host reports.
        expires_at_ms: Expiry time in Unix milliseconds, or None for no expiry.
        bytes_per_second: Rate limit at each service instance, or None for no limit.
        events_per_second: Rate limit at each service instance, or None for no limit.

    Returns:
        The record of the token, and its text with the secret.

    Raises:
        ValueError: If a value is invalid, or if a pattern for reports matches all hosts, such as
            `*`, and `host_ids` is empty.
    """
    for pattern in (*reports, *service_reports):
        if not (host_ids or pattern.strip("*?")):
            raise ValueError(
                f"reports of {pattern!r} would cover every host; use a narrower pattern such as "
                "`web-*`, or host ids"
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
    """Extract the id from a token's text, which has the form `hmk_<id>_<secret>`.

    The function does not check whether the token exists.

    Args:
        text: Complete text of the token, as sent by a client.

    Returns:
        The id, or None if the text does not have this form.
    """
    form = _TEXT.fullmatch(text)
    return form[1] if form else None


def token_digest(text: str) -> str:
    """Return the SHA-256 digest of a token's text in hexadecimal.

    The service stores this digest instead of the text, which contains the secret.

    Args:
        text: Complete text of the token, `hmk_<id>_<secret>`.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def verify_token(token: Token | None, text: str) -> bool:
    """Return whether a client has sent the correct text of a token.

    The comparison takes constant time, so that its duration reveals neither the secret nor the
    existing token ids. Expiry and revocation are not checked.

    Args:
        token: Token whose id the text contains, or None if no such token is known.
        text: Text that the client has sent.

    Returns:
        True if the text belongs to the token. Always False if `token` is None.
    """
    same = hmac.compare_digest(token_digest(text), token.digest if token is not None else NO_SECRET)
    return same and token is not None


def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
