"""Validation of request headers, so that a request has only one interpretation."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers

from hourmark.records.wire import IDEMPOTENCY_HEADER, RULES_HEADER
from hourmark_delivery_service.errors import BadRequest

_OURS: Final = "hourmark-"


def check_headers(headers: Headers) -> None:
    """Check that the `Hourmark-*` headers and the idempotency key of a request are unambiguous.

    Args:
        headers: Headers of the request.

    Raises:
        BadRequest: If one of these headers occurs more than once with different values, or if
            `Hourmark-Rules` is empty.
    """
    for name in {name.lower() for name in headers if name.lower().startswith(_OURS)} | {
        IDEMPOTENCY_HEADER.lower()
    }:
        if len(set(headers.getlist(name))) > 1:
            raise BadRequest(
                "headers",
                f"the header {name.title()} occurs more than once, with different values",
                "send it once",
            )
    if headers.get(RULES_HEADER, "any") == "":
        raise BadRequest(
            "headers",
            f"the header {RULES_HEADER} is empty",
            "set it to a revision; in a batch, it may be omitted",
        )
