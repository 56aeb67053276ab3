"""`POST /v1/events/{type}`: accepts events of one type as NDJSON, a JSON array or a JSON object.

`POST /v1/events/{type}:validate` takes the same requests through the same steps, except that the
events are not delivered to the queue.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import uuid
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from hourmark.records import dead_letters
from hourmark.records.wire import (
    ATOMIC_HEADER,
    CLIENT_HEADER,
    IDEMPOTENCY_HEADER,
    OBSERVED_AT_HEADER,
    RULES_HEADER,
)
from hourmark_delivery_service.access.grants import request_grant
from hourmark_delivery_service.edge.request_headers import check_headers
from hourmark_delivery_service.edge.responses import json_response
from hourmark_delivery_service.errors import (
    BadRequest,
    BatchRejected,
    ContentTooLarge,
    ResourceNotFound,
    ServiceError,
    UnsupportedMediaType,
    bad_request,
)
from hourmark_delivery_service.parsing import Batch, BatchParser
from hourmark_delivery_service.parsing.compiled import CompiledRules
from hourmark_delivery_service.parsing.json_bodies import json_body_to_lines
from hourmark_delivery_service.work.body import content_encoding
from hourmark_delivery_service.work.peer import ClientPeer, peer_of
from hourmark_delivery_service.work.service import DeliveryService, check_observed_at
from hourmark_delivery_service.work.turns import Job
from hourmark_delivery_service.work.workers import LONG_BYTES

_TIMES_MS: Final = range(
    946_684_800_000, 4_102_444_800_000
)  # 2000 to 2099; other values are random bits, not times
_UUID7: Final = re.compile(
    r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)
_ULID: Final = re.compile(r"([0-7][0-9a-hjkmnp-tv-z]{9})[0-9a-hjkmnp-tv-z]{16}")
_CROCKFORD: Final = {digit: value for value, digit in enumerate("0123456789abcdefghjkmnpqrstvwxyz")}


def idempotency_key_time_ms(key: str) -> int | None:
    """Extract the timestamp from an idempotency key that is a UUIDv7 or a ULID.

    Args:
        key: Idempotency key of a request, case-insensitive. It may be enclosed in double quotes.

    Returns:
        Unix milliseconds. None if the key has another form, or if its time is not in the years 2000
        to 2099.
    """
    text = key.removeprefix('"').removesuffix('"').lower()
    if match := _UUID7.fullmatch(text):
        time_ms = int(match[1] + match[2], 16)
    elif match := _ULID.fullmatch(text):
        time_ms = 0
        for digit in match[1]:
            time_ms = time_ms << 5 | _CROCKFORD[digit]
    else:
        return None
    return time_ms if time_ms in _TIMES_MS else None


_CLIENT_DEFAULT: Final = "api"
_NAME_CHARS_MAX: Final = 255
_SPACE: Final = b" \t\r\n\xef\xbb\xbf"  # and a byte order mark
_NEXT_STEP: Final = (
    "a retry of this request may store its events twice; send a UUIDv7 or a ULID as "
    "Idempotency-Key that is created with the batch and reused for its retries, or see "
    "docs/reference/http-api.md"
)


class _Fixed(NamedTuple):
    key: bool
    time: bool


class EventsEndpoint:
    """HTTP endpoints that store or validate batches of events of one type.

    An invalid event is stored as a dead letter and is counted in the response. The other events of
    the batch are stored as usual. The request as a whole fails only if the body is not a batch, or
    if the client requested an atomic batch and one of its events is invalid.

    Args:
        service: Service that parses the batches and delivers their events to Kafka.
    """

    def __init__(self, service: DeliveryService) -> None:
        self._service = service
        self._line_max = service.settings.line_bytes_max
        self._batch_max = service.settings.range_bytes_max

    async def post(self, http: Request) -> Response:
        """Store a batch of events and respond with 200 once all in-sync replicas have it.

        The JSON response contains the numbers of events and dead letters, the rejected events, and
        the delivery guarantee (`exactly once` or `at least once`). Its member `repeat` contains the
        headers that a retry must send to be recognized as the same batch. Error responses contain
        `repeat` too if the headers of the batch are valid.

        Args:
            http: Request whose body is NDJSON, a JSON array or a JSON object.

        Raises:
            ServiceError: If the request is rejected or Kafka is unavailable. The error becomes the
                HTTP response, and nothing is acknowledged.
        """
        return json_response(await self._process(http, validate_only=False))

    async def validate(self, http: Request) -> Response:
        """Validate a batch of events like `post`, but store nothing.

        The request needs the same token as `post`, and its size counts toward the token's rate
        limits. The JSON response has the additional member `validate_only`, which is true. Kafka is
        not accessed, so a later `post` may still fail with 503.

        Args:
            http: Request whose body is NDJSON, a JSON array or a JSON object.

        Raises:
            ServiceError: If `post` would reject the request. The error becomes the HTTP response.
        """
        return json_response(
            {**await self._process(http, validate_only=True), "validate_only": True}
        )

    async def _process(self, http: Request, *, validate_only: bool) -> dict[str, Any]:
        service = self._service
        with service.inflight.track() as request:
            grant = request_grant(http)
            grant.check_types((http.path_params["type"],))
            grant.check_rate()
            check_headers(http.headers)
            content_encoding(http)
            _check_media_type(http)
            atomic = _atomic(http)
            service.check_accepting()
            batch, fixed = self._batch(http, request.start_ms)
            try:
                service.check_clock(batch.observed_at_ms)
                rules = service.rules_for(batch.rules)
                _check_type(batch.event_type, rules)
                body = await service.bodies.read(http, request, self._line_max + 1)
                grant.charge(size=len(body))
                _check_no_form(http, body)
                if rules.parser.reads_json_bodies:
                    body = await self._as_lines(body, peer_of(http))
                self._check_size(body)
                with bad_request("batch", "send at least one line of JSON"):
                    parser = BatchParser(batch, body, rules)
                if validate_only:
                    await service.validate(parser, body, request, peer_of(http))
                    self._count_validated(batch.event_type, parser)
                    if atomic:
                        _check_none_rejected(parser)
                else:
                    if atomic:
                        await self._check_all(BatchParser(batch, body, rules), body, peer_of(http))
                    parser = await service.deliver(batch, parser, body, request, peer_of(http))
                grant.charge(events=parser.event_count + parser.dead_letter_count)
            except ServiceError as error:
                error.problem["repeat"] = _repeat(batch)
                raise
        return _content(parser, batch, fixed)

    def _batch(self, http: Request, start_ms: int) -> tuple[Batch, _Fixed]:
        key = _name(http, IDEMPOTENCY_HEADER)
        time_ms = _time_ms(http, key)
        latest = self._service.rules.latest
        assert latest is not None, "check_accepting comes first"
        batch = Batch(
            event_type=http.path_params["type"],
            client=_name(http, CLIENT_HEADER) or _CLIENT_DEFAULT,
            key=key or uuid.uuid4().hex,
            observed_at_ms=start_ms if time_ms is None else time_ms,
            rules=http.headers.get(RULES_HEADER, latest.id),
        )
        return batch, _Fixed(key is not None, time_ms is not None)

    async def _check_all(self, parser: BatchParser, body: bytes, peer: ClientPeer) -> None:
        # Parsing is pure, so the delivery parses the batch with the same result.
        await self._service.parse_only(parser, body, peer)
        _check_none_rejected(parser)

    def _count_validated(self, event_type: str, parser: BatchParser) -> None:
        counter = self._service.metrics.validated_events
        for result, count in (
            ("valid", parser.event_count),
            ("rejected", parser.dead_letter_count),
        ):
            if count:
                counter.labels(event_type, result).inc(count)

    async def _as_lines(self, body: bytes, peer: ClientPeer) -> bytes:
        if len(body) <= LONG_BYTES:
            return json_body_to_lines(body)
        return await self._service.executor.run_in_thread(
            Job(), functools.partial(json_body_to_lines, body), peer
        )

    def _check_size(self, body: bytes) -> None:
        if len(body) > self._batch_max and body.find(b"\n") not in (-1, len(body) - 1):
            raise ContentTooLarge(
                "too_large",
                f"a batch of several lines must not exceed {self._batch_max} bytes",
                "send smaller batches",
            )


def _media_type(http: Request) -> str:
    return http.headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_media_type(http: Request) -> None:
    if _media_type(http).startswith("multipart/"):
        raise _unknown_media_type(http)


def _check_no_form(http: Request, body: bytes) -> None:
    # `curl -d` labels JSON as a form, so the media type alone proves nothing.
    if _media_type(http) == "application/x-www-form-urlencoded" and body.lstrip(_SPACE)[:1] not in (
        b"",
        b"{",
        b"[",
    ):
        raise _unknown_media_type(http)


def _unknown_media_type(http: Request) -> UnsupportedMediaType:
    command = (
        "curl -H 'Content-Type: application/x-ndjson' --data-binary @events.ndjson "
        f"{http.url.replace(query='')}"
    )
    return UnsupportedMediaType(
        "media_type",
        f"the body has the media type {_media_type(http):.80}, not JSON",
        f"send one event per line: {command}",
    )


def _check_type(event_type: str, rules: CompiledRules) -> None:
    if event_type == dead_letters.TYPE:
        raise ResourceNotFound(
            "unknown_type",
            "dead letters can only be created by the service",
            "post events of a declared type",
        )
    if event_type not in rules.types:
        known = ", ".join(sorted(set(rules.types) - {dead_letters.TYPE})[:50])
        raise ResourceNotFound(
            "unknown_type",
            f"unknown event type {event_type!r:.120}; known types: {known}",
            "add event types with `hourmark types apply`",
        )


def _atomic(http: Request) -> bool:
    text = http.headers.get(ATOMIC_HEADER, "false")
    if text not in ("true", "false"):
        raise BadRequest("headers", f"{ATOMIC_HEADER} is {text!r:.40}", "send true or false")
    return text == "true"


def _check_none_rejected(parser: BatchParser) -> None:
    if count := parser.dead_letter_count:
        which = (
            f"{count} of {count + parser.event_count} events are not valid, so none was accepted"
        )
        raise BatchRejected(which, _rejected(parser))


def _content(parser: BatchParser, batch: Batch, fixed: _Fixed) -> dict[str, Any]:
    exactly = (fixed.key or not parser.depends_on_key) and (
        fixed.time or not parser.depends_on_time
    )
    return {
        "events": parser.event_count,
        "dead_letters": parser.dead_letter_count,
        "blanks": parser.blanks,
        "dead_letter_reasons": parser.reasons,
        **({"rejected": _rejected(parser)} if parser.rejected else {}),
        **(
            {"delivery": "exactly once"}
            if exactly
            else {"delivery": "at least once", "next_step": _NEXT_STEP}
        ),
        "repeat": _repeat(batch),
    }


def _rejected(parser: BatchParser) -> list[dict[str, Any]]:
    # Details quote the payload, so they are omitted for types with redaction.
    rows = [dataclasses.asdict(event) for event in parser.rejected]
    if parser.withholds:
        for row in rows:
            del row["detail"]
    return rows


def _time_ms(http: Request, key: str | None) -> int | None:
    text = http.headers.get(OBSERVED_AT_HEADER)
    if text is None:
        return None if key is None else idempotency_key_time_ms(key)
    with bad_request("headers", "send the value from the first response again"):
        observed_at_ms = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else -1
        check_observed_at(observed_at_ms)
    return observed_at_ms


def _name(http: Request, header: str) -> str | None:
    # A name that is not valid UTF-8 is rejected, so that two names are never read as one.
    text = http.headers.get(header)
    if text is None:
        return None
    try:
        name = unquote_to_bytes(
            text.encode("latin-1")
        ).decode()  # as it came: HTTP's header values are bytes
    except UnicodeDecodeError as error:
        raise BadRequest(
            "headers",
            f"{header} is not valid UTF-8 after percent-decoding",
            "percent-encode the UTF-8 bytes of the name",
        ) from error
    if not 0 < len(name) <= _NAME_CHARS_MAX or not name.isprintable():
        raise BadRequest(
            "headers",
            f"{header} must have 1 to {_NAME_CHARS_MAX} printable characters",
            "choose a shorter name",
        )
    return name


def _repeat(batch: Batch) -> dict[str, str]:
    return {OBSERVED_AT_HEADER: str(batch.observed_at_ms), RULES_HEADER: batch.rules}
