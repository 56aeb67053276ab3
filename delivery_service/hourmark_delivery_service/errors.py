"""HTTP error responses of the delivery service, and errors of its queue.

HourmarkError
├── ServiceError            an HTTP response: a problem (RFC 9457) with a code and a next step
│   ├── BadRequest            400  the same request can never be accepted
│   ├── Unauthorized          401  no token, or a token that is not valid
│   ├── Forbidden             403  the token does not cover the request
│   ├── ResourceNotFound      404
│   ├── RequestTimeout        408  the body did not arrive in time
│   ├── ContentTooLarge       413
│   ├── UnsupportedMediaType  415
│   ├── BatchRejected         422  an event of an atomic batch is invalid, so the batch is rejected
│   ├── TooManyRequests       429  with Retry-After: the token's rate is exceeded
│   ├── HeadersTooLarge       431
│   ├── NotSupported          501  a transfer coding that this service does not implement
│   └── ServiceUnavailable    503  with Retry-After: nothing was acknowledged; retry the request
└── Unavailable
    └── QueueError          nothing may be acknowledged; a retry may succeed
        ├── QueueUnavailable    the queue does not accept records now
        ├── NotDelivered        the records did not reach all in-sync replicas in time
        └── TopicUnavailable    one topic cannot take records; other topics can
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

from hourmark.errors import HourmarkError, Unavailable


class ServiceError(HourmarkError):
    """Base class of errors that the service returns as HTTP problem documents (RFC 9457).

    Each subclass sets the HTTP status.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states what happened.
        next_step: What the client should do next.

    Attributes:
        status: HTTP status code of the response.
        code: Stable, machine-readable error code.
        problem: Members of the JSON problem document: `detail`, `code`, `next_step`.
        retry_after_s: Value of the `Retry-After` header in seconds, or None for no header.
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
        """Return the HTTP headers to add to the error response, such as `Retry-After`.

        Returns an empty dict if the error requires no additional headers.
        """
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


class BadRequest(ServiceError):
    """HTTP 400: the request violates the API contract.

    A retry of the same request fails again. The client must correct the request first.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states how the request violates the contract.
        next_step: What the client should do to correct the request.
    """

    status = 400


@contextlib.contextmanager
def bad_request(code: str, next_step: str) -> Iterator[None]:
    """Return a context manager that converts a `ValueError` in its block to `BadRequest`.

    Args:
        code: Stable error code of the response.
        next_step: What the client should do to correct the request.

    Raises:
        BadRequest: If the block raises `ValueError`. Its message becomes the problem's `detail`.
    """
    try:
        yield
    except ValueError as error:
        raise BadRequest(code, str(error)[:500], next_step) from error


class Unauthorized(ServiceError):
    """HTTP 401: the request has no token, or its token is unknown, revoked or expired.

    The service closes the connection without reading the request body. The client must send the
    request again with a valid token.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states why the token is not accepted.
        next_step: What the client should do next.
    """

    status = 401

    @property
    def headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": 'Bearer realm="hourmark"', "Connection": "close"}


class Forbidden(ServiceError):
    """HTTP 403: the token does not cover the event type, host or host report of the request.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states what the token does not cover.
    """

    status = 403

    def __init__(self, code: str, message: str) -> None:
        super().__init__(
            code,
            message,
            "send it with another token: `hourmark token create --help` shows how to create one",
        )


class ResourceNotFound(ServiceError):
    """HTTP 404: the requested resource, such as an event type, does not exist.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states which resource does not exist.
        next_step: What the client should do next.
    """

    status = 404


class RequestTimeout(ServiceError):
    """HTTP 408: the client did not send the complete headers or body within the time limit.

    Nothing was stored, so the client can send the request again.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states which part of the request did not arrive in time.
        next_step: What the client should do next.
    """

    status = 408


class ContentTooLarge(ServiceError):
    """HTTP 413: the request body exceeds a size limit, before or after decompression.

    A retry of the same request fails again. The client must send less data per request.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states which limit the body exceeds.
        next_step: What the client should do next.
    """

    status = 413


class UnsupportedMediaType(ServiceError):
    """HTTP 415: the service does not support the content encoding or media type of the body.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states which encoding or media type is not supported.
        next_step: What the client should do next, such as using another encoding.
    """

    status = 415


class BatchRejected(ServiceError):
    """HTTP 422: an event of an atomic batch is invalid, so no event of the batch was stored.

    Args:
        message: Human-readable message that states how many events are invalid.
        rejected: Description of each invalid event, as a JSON object. The problem document lists
            them as `rejected`.
    """

    status = 422

    def __init__(self, message: str, rejected: list[dict[str, Any]]) -> None:
        super().__init__(
            "rejected",
            message,
            "correct the events listed in `rejected`, and send the batch again",
        )
        self.problem["rejected"] = rejected


class HeadersTooLarge(ServiceError):
    """HTTP 431: the request headers exceed the limit on their total size or on their number.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states which limit the headers exceed.
        next_step: What the client should do next.
    """

    status = 431


class TooManyRequests(ServiceError):
    """HTTP 429: the rate limit of the token is exceeded, and nothing was stored.

    Args:
        message: Human-readable message that states which token exceeded its limit.
        retry_after_s: Seconds after which the client should send the request again.
    """

    status = 429

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(
            "rate",
            message,
            f"send the same request again after {retry_after_s} s, or create a token with a "
            "higher rate limit",
        )
        self.retry_after_s = retry_after_s


class NotSupported(ServiceError):
    """HTTP 501: the request needs an HTTP feature that this service does not implement.

    A retry of the same request fails again.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states which feature is not implemented.
        next_step: What the client should do next.
    """

    status = 501


class ServiceUnavailable(ServiceError):
    """HTTP 503: the service cannot process the request now. The client should send it again.

    Nothing was acknowledged.

    Args:
        code: Stable, machine-readable error code.
        message: Human-readable message that states why the service is unavailable.
        retry_after_s: Seconds after which the client should send the request again.
    """

    status = 503

    def __init__(self, code: str, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(code, message, "send the same request again")
        self.retry_after_s = retry_after_s


class QueueError(Unavailable):
    """Base class of the errors of the durable queue, which stores records in Kafka.

    Some of the records may have been stored. The caller must not acknowledge any of them, so that
    the client sends them again.
    """


class QueueUnavailable(QueueError):
    """The durable queue does not accept records now, for example because its buffer is full.

    Some of the records may have been stored. The caller must not acknowledge any of them. A retry
    may succeed.
    """


class NotDelivered(QueueError):
    """Kafka did not confirm in time that all in-sync replicas have stored all records.

    Some of the records may have been stored. The caller must not acknowledge any of them, so that
    the client sends them again.
    """


class TopicUnavailable(QueueError):
    """One topic of the durable queue does not accept records now; other topics may.

    Records of the request that belong to other topics may have been stored. The caller must not
    acknowledge any of them. A retry succeeds once the topic accepts records again.

    Args:
        topic: Name of the topic.
        message: Human-readable cause, and the next step for the operator.
        is_missing: Whether the topic does not exist.
    """

    def __init__(self, topic: str, message: str, *, is_missing: bool) -> None:
        super().__init__(message)
        self.topic = topic
        self.is_missing = is_missing
