"""`POST /v1/ranges`: accepts byte ranges of files from tailers."""

from __future__ import annotations

import dataclasses

from starlette.requests import Request
from starlette.responses import Response

from hourmark.records.ranges import ByteRange, Part
from hourmark.records.wire import RangeResponse, parse_range_headers
from hourmark_delivery_service.access.grants import request_grant
from hourmark_delivery_service.edge.request_headers import check_headers
from hourmark_delivery_service.edge.responses import json_response
from hourmark_delivery_service.errors import BadRequest, ContentTooLarge, bad_request
from hourmark_delivery_service.parsing import CompiledRules, RangeParser
from hourmark_delivery_service.work.body import content_encoding
from hourmark_delivery_service.work.peer import peer_of
from hourmark_delivery_service.work.service import DeliveryService, check_observed_at


class RangesEndpoint:
    """HTTP endpoint that accepts byte ranges of log files from tailers.

    Any file content is accepted. Each line becomes an event or a dead letter (the record of an
    invalid line), or is counted as blank. Invalid lines never cause an error status.

    Args:
        service: Service that parses the ranges and delivers their events to Kafka.
    """

    def __init__(self, service: DeliveryService) -> None:
        self._service = service
        self._inflated_max = (
            service.settings.line_bytes_max + 1
        )  # a single record of the longest line, with its LF

    async def post(self, http: Request) -> Response:
        """Store a byte range of a file and respond with 200 once all in-sync replicas have it.

        The JSON response contains the end offset of the range and its numbers of events, dead
        letters and blank lines. A retry of the same range gets the same response.

        Args:
            http: Request. Its headers describe the range, and its body contains the bytes.

        Raises:
            ServiceError: If the request is rejected or Kafka is unavailable. The error becomes the
                HTTP response, and nothing is acknowledged.
        """
        service = self._service
        with service.inflight.track() as request:
            check_headers(http.headers)
            with bad_request(
                "headers", "send the headers that docs/reference/http-ranges.md lists"
            ):
                byte_range = parse_range_headers(http.headers)
                check_observed_at(byte_range.observed_at_ms)
            grant = request_grant(http)
            grant.check_host(byte_range.host_name, byte_range.host_id)
            grant.check_rate()
            content_encoding(http)
            size = byte_range.end - byte_range.start
            if size > self._inflated_max:
                raise ContentTooLarge(
                    "too_large",
                    f"the range has {size} bytes; the limit is {self._inflated_max} bytes",
                    "send smaller ranges",
                )
            service.check_accepting()
            service.check_range_clock(byte_range.observed_at_ms)
            rules = service.rules_for(byte_range.rules)
            grant.check_types(_types_of(byte_range.source, rules))
            body = await service.bodies.read(http, request, self._inflated_max)
            grant.charge(size=len(body))
            self._check_size(byte_range, body)
            with bad_request(
                "range", "cut the range as described in docs/reference/http-ranges.md"
            ):
                parser = RangeParser(byte_range, body, rules)
            parser = await service.deliver(byte_range, parser, body, request, peer_of(http))
            grant.charge(events=parser.event_count + parser.dead_letter_count)
            answer = RangeResponse(
                end=byte_range.end,
                events=parser.event_count,
                dead_letters=parser.dead_letter_count,
                blanks=parser.blanks,
                dead_letter_reasons=dict(parser.reasons),
            )
            return json_response(dataclasses.asdict(answer))

    def _check_size(self, byte_range: ByteRange, body: bytes) -> None:
        size = byte_range.end - byte_range.start
        if len(body) != size:
            raise BadRequest(
                "length",
                f"according to the headers, the range has {size} bytes, but the body has "
                f"{len(body)}",
                "send all bytes of the range",
            )
        limit = self._service.settings.range_bytes_max
        joined = byte_range.record_start or byte_range.format  # records may be more than one line
        single = (
            joined or byte_range.part is not Part.LINES or body.find(b"\n", 0, len(body) - 1) < 0
        )
        if len(body) > limit and not single:
            raise ContentTooLarge(
                "too_large",
                f"a range of several lines must not exceed {limit} bytes",
                "send smaller ranges",
            )


def _types_of(source: str, rules: CompiledRules) -> list[str]:
    # All types that lines of the source may become: a token for one type must not allow others
    # through a file.
    declared = rules.sources.get(source)
    if declared is None:
        return []
    return [*declared.types, *([declared.catch_all] if declared.catch_all is not None else [])]
