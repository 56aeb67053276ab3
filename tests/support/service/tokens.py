"""Tokens for a service under test, and records of them as the topic has them."""

from __future__ import annotations

from typing import Any

from tests.support.service.examples import NOW_MS
from tests.support.service.harness import Harness

from hourmark_delivery_service.access.token import NewToken, Token, new_token

Records = list[tuple[bytes | None, bytes | None]]


def record(token: Token) -> tuple[bytes | None, bytes | None]:
    """As the topic has it."""
    return token.id.encode(), token.to_json().encode()


def tombstone(token: Token) -> tuple[bytes | None, bytes | None]:
    """As somebody deletes it."""
    return token.id.encode(), None


def made(**covers: Any) -> NewToken:
    """A token that nobody knows yet."""
    return new_token("test", NOW_MS, **covers)


def of_tailer(h: Harness, host: str = "host-*", **covers: Any) -> NewToken:
    """A token that the service knows, with which tailers of these hosts deliver and report."""
    return known(h, reports=(host,), **covers)


def known(h: Harness, **covers: Any) -> NewToken:
    """A token that the service knows."""
    token = made(**covers)
    h.service.access.token_store.feed(
        [record(token.token)], from_start=not h.service.access.token_store.caught_up
    )
    return token


def bearer(token: NewToken) -> dict[str, str]:
    """The header."""
    return {"Authorization": f"Bearer {token.text}"}
