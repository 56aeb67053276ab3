"""The tokens that this instance has read from Kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from hourmark.clock import Clock
from hourmark_delivery_service.access.token import Token
from hourmark_delivery_service.metrics import ServiceMetrics

_LOG = logging.getLogger(__name__)


class TokenStore:
    """The access tokens that this instance has read from the topic `hourmark.tokens`.

    One thread calls `feed`, and the event loop calls the other methods. If the topic becomes
    unavailable or is deleted, known tokens remain valid, and revoked tokens remain revoked. A
    service that starts while the topic is missing has no tokens and rejects all requests.

    Args:
        clock: Source of the current time.
        metrics: Metrics that show the number of tokens.

    Attributes:
        caught_up: Whether the topic exists and was read to its end at least once.
    """

    def __init__(self, clock: Clock, metrics: ServiceMetrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._tokens: dict[str, Token] = {}
        self._published: set[str] = set()  # those that the topic holds now
        self._lost = 0
        self._trouble = ""
        self._read_ms = 0
        self.caught_up = False  # whether there is a topic, and it was once read to its end

    def feed(
        self, records: Iterable[tuple[bytes | None, bytes | None]], *, from_start: bool
    ) -> None:
        """Update the known tokens with records from the token topic.

        An invalid record is logged, and its token is no longer accepted. A tombstone (a record
        without a value) revokes its token.

        Args:
            records: Key (the token id) and value (JSON, or None for a tombstone) of each record, up
                to the current end of the topic.
            from_start: Whether the records start at the beginning of the topic, or the topic was
                deleted. Tokens that are missing from `records` then remain valid, but `warnings`
                reports them.
        """
        tokens = dict(self._tokens)
        if from_start:
            self._published = set()
        for key, value in records:
            self._take(tokens, (key or b"").decode("latin-1"), value)
        self._tokens = tokens
        self.caught_up = self.caught_up or from_start
        self._read_ms = self._clock.now_ms()
        self._metrics.tokens_read.set(self._read_ms / 1000)
        self._metrics.tokens.set(sum(not t.revoked for t in tokens.values()))
        self._note_lost(
            sum(1 for t in tokens.values() if not t.revoked and t.id not in self._published)
        )

    def get(self, token_id: str) -> Token | None:
        """Return the token with a given id.

        Revoked and expired tokens are returned too. The caller must check for both.

        Args:
            token_id: Id of the token, 16 hexadecimal digits.

        Returns:
            The token, or None if no token with this id is known.
        """
        return self._tokens.get(token_id)

    @property
    def read_error(self) -> str:
        """Return the reason why the token topic currently cannot be read.

        The reason starts with a colon and a space, so that it can be appended to a message. Returns
        an empty string if the last attempt to read the topic succeeded.
        """
        return self._trouble

    @read_error.setter
    def read_error(self, why: str) -> None:
        if why and not self._trouble:
            _LOG.error(
                "changes of tokens cannot be read%s; known tokens remain valid, and new "
                "revocations have no effect",
                why,
            )
        elif self._trouble and not why:
            _LOG.warning("changes of tokens can be read again")
        self._trouble = why

    def warnings(self) -> list[str]:
        """Return warnings for the operator that do not prevent the service from accepting requests.

        Returns:
            One message if the topic cannot be read, and one if the topic no longer contains all
            valid tokens. Empty if there are no problems.
        """
        found = []
        if self._trouble and self.caught_up:
            age_s = (self._clock.now_ms() - self._read_ms) / 1000
            found.append(
                f"the tokens in use are {age_s:.0f} s old, so later revocations have no effect "
                f"yet{self._trouble}"
            )
        if self._lost:
            found.append(_lost_text(self._lost))
        return found

    def _take(self, tokens: dict[str, Token], key: str, value: bytes | None) -> None:
        known = tokens.get(key)
        if (
            value is None
        ):  # this software never deletes records; an operator who does wants to revoke the token
            if known is not None:
                tokens[key] = known.revoke(self._clock.now_ms())
            return
        try:
            token = Token.from_json(key, value)
        except ValueError as error:
            _LOG.error(
                "the record %.40r of hourmark.tokens is not a valid token, so the token is rejected: "
                "%.500s",
                key,
                error,
            )
            tokens.pop(key, None)
            return
        self._published.add(key)
        if known is None or not known.revoked:
            tokens[key] = token

    def _note_lost(self, lost: int) -> None:
        if lost and lost != self._lost:
            _LOG.error("%s", _lost_text(lost))
        self._lost = lost
        self._metrics.tokens_lost.set(lost)


def _lost_text(lost: int) -> str:
    return (
        f"hourmark.tokens no longer contains {lost} of the tokens that this service accepts; "
        "services that start now reject them. Restore the topic, or create new tokens with "
        "`hourmark token create`, and restart this service"
    )
