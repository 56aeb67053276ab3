"""What the service answers when it does not answer 200, and what may go wrong behind it.

HourmarkError
├── ServiceError            becomes an HTTP answer: a problem of RFC 9457, with a code and a next step
│   ├── BadRequest          400  the same request will never be accepted
│   ├── Unauthorized        401  no token, or none that is in force
│   ├── Forbidden           403  the token does not cover this
│   ├── NotFound            404
│   ├── TooSlow             408  the body did not come in time
│   ├── TooLarge            413
│   ├── UnknownEncoding     415
│   ├── BatchRejected       422  a batch that is taken whole or not at all has an event that cannot be taken
│   ├── TooMuch             429  with Retry-After: the token's rate is used up; send the same again
│   ├── HeadersTooLarge     431
│   ├── NotSupported        501  a transfer coding that this service does not read
│   └── NotNow              503  with Retry-After: nothing was acknowledged, send the same again
└── Unavailable
    └── QueueError          nothing may be acknowledged; trying again may help
        ├── QueueUnavailable    the queue does not take records now
        └── NotDelivered        it took them, and they did not reach all in-sync replicas in time
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

from hourmark.errors import HourmarkError, Unavailable


class ServiceError(HourmarkError):
    """Base of HTTP answers other than 200.

    `code` is stable, `message` and `next_step` are human-readable.
    """

    status: ClassVar[int] = 500
    retry_after_s: int | None = None

    def __init__(self, code: str, message: str, next_step: str) -> None:
        super().__init__(f"{message}; {next_step}")
        self.code = code
        self.problem: dict[str, Any] = {
            "detail": message,
            "code": code,
            "next_step": next_step,
        }  # its own members, as JSON

    @property
    def headers(self) -> dict[str, str]:
        """What the answer's headers say of it."""
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


class BadRequest(ServiceError):
    """The request contradicts the contract."""

    status = 400


@contextlib.contextmanager
def bad_request(code: str, next_step: str) -> Iterator[None]:
    """A ValueError within is the client's fault, and says what is wrong."""
    try:
        yield
    except ValueError as error:
        raise BadRequest(code, str(error)[:500], next_step) from error


class Unauthorized(ServiceError):
    """Whoever this is has no token that is in force.

    The connection ends: nothing of its body is read.
    """

    status = 401

    @property
    def headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": 'Bearer realm="hourmark"', "Connection": "close"}


class Forbidden(ServiceError):
    """The token does not cover what is posted."""

    status = 403

    def __init__(self, code: str, message: str) -> None:
        super().__init__(
            code,
            message,
            "send it with another token: `hourmark token create --help` tells how to make one",
        )


class ResourceNotFound(ServiceError):
    """There is nothing of that name."""

    status = 404


class RequestTimeout(ServiceError):
    """The body did not come in time."""

    status = 408


class ContentTooLarge(ServiceError):
    """The body is over a limit."""

    status = 413


class UnsupportedMediaType(ServiceError):
    """The body's encoding or media type is not understood."""

    status = 415


class BatchRejected(ServiceError):
    """An event of an atomic batch cannot be taken, so nothing of the batch was."""

    status = 422

    def __init__(self, message: str, rejected: list[dict[str, Any]]) -> None:
        super().__init__(
            "rejected",
            message,
            "correct the events that `rejected` names, and send the batch again",
        )
        self.problem["rejected"] = rejected


class HeadersTooLarge(ServiceError):
    """The headers are over a limit."""

    status = 431


class TooManyRequests(ServiceError):
    """More than the token's rate; nothing was acknowledged."""

    status = 429

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(
            "rate",
            message,
            f"send the same request again after {retry_after_s} s, or ask for a higher rate",
        )
        self.retry_after_s = retry_after_s


class NotSupported(ServiceError):
    """The request needs what this service does not implement."""

    status = 501


class ServiceUnavailable(ServiceError):
    """Nothing was acknowledged; the same request may be accepted later."""

    status = 503

    def __init__(self, code: str, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(code, message, "send the same request again")
        self.retry_after_s = retry_after_s


class QueueError(Unavailable):
    """The durable queue did not take everything: nothing of it may be acknowledged."""


class QueueUnavailable(QueueError):
    """The queue does not take records now."""


class NotDelivered(QueueError):
    """Records did not reach all in-sync replicas in time. They may be there nevertheless."""
