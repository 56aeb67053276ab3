"""The HTTP API as an OpenAPI 3.1 document with the limits of this instance: `GET /openapi.json`.

The document is maintained by hand. docs/reference/http-endpoints.md is generated from it, and
docs/reference/http-api.md explains it. Tests check it with schemathesis against the running
service: a response with an undocumented status, media type or schema fails a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

from pydantic import TypeAdapter

from hourmark.config.groups import ServiceSettings
from hourmark.records.dead_letters import DeadLetterReason
from hourmark.records.host_reports import HostReport
from hourmark.records.ranges import Part
from hourmark.records.wire import (
    ATOMIC_HEADER,
    CLIENT_HEADER,
    CLOCK_HEADER,
    EVENTS_PATH,
    EXTRA_HEADERS,
    HELLO_PATH,
    IDEMPOTENCY_HEADER,
    OBSERVED_AT_HEADER,
    PART_HEADER,
    RANGE_HEADERS,
    RANGES_PATH,
    REPORTS_PATH,
    RULES_HEADER,
    VALIDATE_PATH,
)
from hourmark_delivery_service.edge.responses import PROBLEM
from hourmark_delivery_service.work.body import ENCODINGS

OPENAPI_PATH: Final = "/openapi.json"

_JSON: Final = "application/json"
_NDJSON: Final = "application/x-ndjson"
_STREAM: Final = "application/octet-stream"
_TEXT: Final = "text/plain"

_Json = dict[str, Any]

_COUNT: Final[_Json] = {"type": "integer", "minimum": 0}
_MILLISECONDS: Final[_Json] = {"type": "integer", "description": "Unix milliseconds"}
_REASONS: Final[_Json] = {
    "type": "object",
    "description": "number of dead letters by reason; reasons without dead letters are omitted",
    "propertyNames": {"enum": [reason.value for reason in DeadLetterReason]},
    "additionalProperties": {"type": "integer", "minimum": 1},
}
_REJECTED: Final[_Json] = {
    "type": "array",
    "description": "the first 1000 events of the batch that are not valid",
    "items": {
        "type": "object",
        "required": ["index", "reason", "field"],
        "properties": {
            "index": {
                **_COUNT,
                "description": "index of the line or array element, counted from 0",
            },
            "reason": {"enum": [reason.value for reason in DeadLetterReason]},
            "field": {
                "type": ["string", "null"],
                "description": "name of the invalid field; null if the error concerns no single field",
            },
            "detail": {"type": "string", "description": "omitted if the type redacts fields"},
        },
    },
}
_WHOLE_NUMBER: Final = r"^[0-9]{1,19}$"
_NAME: Final[_Json] = {"type": "string", "minLength": 1, "maxLength": 255}
_OBSERVED_AT: Final[_Json] = {"type": "string", "pattern": r"^[0-9]{12,15}$"}
_HEADER_SCHEMAS: Final[dict[str, _Json]] = {
    "Hourmark-Host": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "Hourmark-File": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "Hourmark-Generation": {"type": "string", "pattern": _WHOLE_NUMBER},
    "Hourmark-Offset": {"type": "string", "pattern": _WHOLE_NUMBER},
    "Hourmark-End": {"type": "string", "pattern": _WHOLE_NUMBER},
    OBSERVED_AT_HEADER: _OBSERVED_AT,
}
_HEADER_TEXTS: Final = {
    "Hourmark-Host": "id of the host, created once for each installation",
    "Hourmark-Host-Name": "name of the host",
    "Hourmark-File": "id of the file",
    "Hourmark-Generation": "number of times that the file has been truncated",
    "Hourmark-Offset": "offset of the first byte of the range since the last truncation",
    "Hourmark-End": "offset of the byte after the range",
    OBSERVED_AT_HEADER: (
        "time at which the range was first read, in Unix milliseconds of the service's clock"
    ),
    RULES_HEADER: "the rules revision with which the range is parsed",
    "Hourmark-Zone": "IANA time zone in which times without a zone are read",
    "Hourmark-Source": "name of the declared source",
    "Hourmark-Path": "path of the file when it was found",
    "Hourmark-Record-Start": "RE2 pattern of the first line of each record of several lines",
    "Hourmark-Fields": "fields that are added to every event, as a JSON object of strings",
    "Hourmark-Format": "cri: the lines are those of a container log",
    "Hourmark-Ending": "eof: the last line has no line feed, because its file ends there",
    PART_HEADER: (
        "whether the body contains whole lines or a piece of a line that exceeds the limit; lists "
        "the optional headers that are sent"
    ),
}
_COMMON: Final = (401, 500, 503)
_DENIED: Final = (403, 429)  # by what a token covers
_BODY: Final = (400, 408, 413, 415, 501)  # what may be wrong with a body


def openapi_document(settings: ServiceSettings) -> _Json:
    """Return the OpenAPI 3.1 document of the service as a JSON-serializable dict.

    Args:
        settings: Settings of the service, whose limits appear in the document.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hourmark Event Delivery Service",
            "version": version("hourmark-delivery-service"),
            "summary": (
                "Accepts byte ranges from tailers and events from any client. Status 200 means "
                "that all in-sync replicas have stored them."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}] if settings.tokens_required else [],
        "paths": {
            RANGES_PATH: {"post": _ranges(settings)},
            EVENTS_PATH: {"post": _events(settings)},
            VALIDATE_PATH: {"post": _validate_events(settings)},
            REPORTS_PATH: {"post": _reports()},
            HELLO_PATH: {"get": _hello()},
            "/healthz": {
                "get": {
                    **_probe(
                        "alive",
                        "Check whether the process is running",
                        "The process is running",
                        _object(alive=_described({"const": True}, "always true")),
                        errors=(500,),
                    ),
                    "security": [],
                }
            },
            "/readyz": {"get": _ready()},
            "/metrics": {
                "get": _probe(
                    "metrics",
                    "Return the metrics of the service",
                    "The metrics in the Prometheus text format",
                    {"type": "string"},
                    _TEXT,
                )
            },
            OPENAPI_PATH: {
                "get": _probe(
                    "openapi",
                    "Return a description of all endpoints with the limits of this instance",
                    "An OpenAPI 3.1 document",
                    {"type": "object"},
                )
            },
        },
        "components": {
            "schemas": {
                "Problem": _problem(),
                "HostReport": TypeAdapter(HostReport).json_schema(
                    ref_template="#/components/schemas/HostReport/$defs/{model}"
                ),
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "a token created by `hourmark token create`",
                }
            },
            "headers": {
                CLOCK_HEADER: {
                    "description": "the service's Unix milliseconds",
                    "schema": {"type": "string"},
                },
                RULES_HEADER: {
                    "description": "the rules revision to state in the next range",
                    "schema": {"type": "string"},
                },
                "Retry-After": {
                    "description": "seconds",
                    "schema": {"type": "string", "pattern": "^[0-9]+$"},
                },
            },
        },
    }


def _ranges(settings: ServiceSettings) -> _Json:
    headers = [
        _header(
            name,
            _HEADER_SCHEMAS.get(name, {"type": "string"}),
            required=True,
            description=_HEADER_TEXTS[name],
        )
        for name in RANGE_HEADERS
    ]
    extras = [
        _header(name, {"type": "string"}, description=_HEADER_TEXTS[name]) for name in EXTRA_HEADERS
    ]
    kinds = f"^({'|'.join(part.value for part in Part)})(; needs=[a-z_,]+)?$"
    part = _header(
        PART_HEADER,
        {"type": "string", "pattern": kinds, "default": Part.LINES.value},
        description=_HEADER_TEXTS[PART_HEADER],
    )
    return {
        "operationId": "postRange",
        "summary": "Store a byte range of a log file for a tailer",
        "description": (
            "The body has exactly `Hourmark-End` minus `Hourmark-Offset` bytes, and at most "
            f"{settings.range_bytes_max} bytes, or {settings.line_bytes_max} bytes and the line "
            "feed if it contains a single record."
        ),
        "parameters": [*headers, part, *extras, _encoding()],
        "requestBody": {
            "required": True,
            "content": {_STREAM: {"schema": {"type": "string", "contentEncoding": "binary"}}},
        },
        "responses": {
            "200": _answer(
                "All in-sync replicas have stored the whole request",
                _object(end=_described(_COUNT, "offset of the next byte to send"), **_delivered()),
            ),
            **_problems(*_BODY, *_DENIED, *_COMMON),
        },
    }


def _events(settings: ServiceSettings) -> _Json:
    return {
        "operationId": "postEvents",
        "summary": "Store events of one type for any client",
        **_events_request(settings),
        "responses": {
            "200": _answer("All in-sync replicas have stored the whole request", _events_content()),
            **_events_problems(),
        },
    }


def _validate_events(settings: ServiceSettings) -> _Json:
    content = _events_content()
    content["required"].append("validate_only")
    content["properties"]["validate_only"] = _described({"const": True}, "always true")
    return {
        "operationId": "validateEvents",
        "summary": "Validate events of one type without storing them",
        **_events_request(settings),
        "responses": {
            "200": _answer(
                "The response that a request to store these events would get; nothing was stored",
                content,
            ),
            **_events_problems(),
        },
    }


def _events_content() -> _Json:
    repeat = _object(**{OBSERVED_AT_HEADER: {"type": "string"}, RULES_HEADER: {"type": "string"}})
    repeat["description"] = "headers that a retry must send to be recognized as the same batch"
    delivery = _described(
        {"enum": ["exactly once", "at least once"]}, "whether a retry can store events twice"
    )
    answer = _object(**_delivered(), delivery=delivery, repeat=repeat)
    answer["properties"]["rejected"] = _REJECTED
    answer["properties"]["next_step"] = {
        "type": "string",
        "description": "how to make a retry of this request safe",
    }
    return answer


def _events_problems() -> _Json:
    return _problems(*_BODY, 404, 422, *_DENIED, *_COMMON)


def _events_request(settings: ServiceSettings) -> _Json:
    event = {
        "type": "object",
        "description": "the fields of the event type, and these two",
        "properties": {"event_id": _NAME, "event_time": {"type": ["integer", "string"]}},
    }
    name = _header(
        IDEMPOTENCY_HEADER,
        _NAME,
        description="key of the batch; a UUIDv7 or a ULID also contains its time",
    )
    return {
        "description": (
            f"The body can have up to {settings.range_bytes_max} bytes, or up to "
            f"{settings.line_bytes_max} bytes if it contains a single event."
        ),
        "parameters": [
            {
                "name": "type",
                "in": "path",
                "required": True,
                "description": "name of the event type",
                "schema": {"type": "string", "minLength": 1},
            },
            name,
            _header(CLIENT_HEADER, {**_NAME, "default": "api"}, description="name of the sender"),
            _header(
                ATOMIC_HEADER,
                {"enum": ["true", "false"], "default": "false"},
                description="true: if any event is not valid, none is accepted, and the response is 422",
            ),
            _header(
                OBSERVED_AT_HEADER,
                _OBSERVED_AT,
                description="time of the batch, in Unix milliseconds",
            ),
            _header(
                RULES_HEADER,
                {"type": "string"},
                description="the rules revision with which the batch is parsed",
            ),
            _encoding(),
        ],
        "requestBody": {
            "required": True,
            "content": {
                _NDJSON: {"schema": {"type": "string", "description": "one event per line"}},
                _JSON: {
                    "schema": {"oneOf": [event, {"type": "array", "minItems": 1, "items": event}]}
                },
            },
        },
    }


def _reports() -> _Json:
    body = {
        "required": True,
        "content": {_JSON: {"schema": {"$ref": "#/components/schemas/HostReport"}}},
    }
    return {
        "operationId": "postReport",
        "summary": "Store a host report, in which a tailer states how much it has delivered",
        "parameters": [_encoding()],
        "requestBody": body,
        "responses": {
            "200": _answer("The report is stored", _object(received_at_ms=_MILLISECONDS)),
            **_problems(*_BODY, 403, *_COMMON),
        },
    }


def _hello() -> _Json:
    answer = _answer(
        "The service's clock and rules revision, which a client needs for its first request",
        _object(
            clock_ms=_MILLISECONDS,
            rules=_described({"type": "string"}, "id of the latest rules revision"),
        ),
    )
    return {
        "operationId": "hello",
        "summary": "Return the clock and the latest rules revision of the service",
        "responses": {"200": answer, **_problems(*_COMMON)},
    }


def _ready() -> _Json:
    texts = {"type": "array", "items": {"type": "string"}}
    schema = _object(
        ready=_described({"type": "boolean"}, "whether the status is 200"),
        reasons=_described(texts, "why the service is not ready"),
        warnings=_described(
            texts, "problems that do not prevent the service from accepting requests"
        ),
        native_pass=_described({"type": "boolean"}, "whether lines are parsed by the C module"),
    )
    responses = {
        "200": _answer("The service accepts requests", schema),
        "503": _answer("The service does not accept requests now", schema),
        **_problems(500),
    }
    return {
        "operationId": "ready",
        "security": [],
        "summary": "Check whether the service accepts requests now",
        "responses": responses,
    }


def _probe(
    name: str,
    summary: str,
    result: str,
    schema: _Json,
    media_type: str = _JSON,
    *,
    errors: Sequence[int] = (401, 500),
) -> _Json:
    responses = {"200": _answer(result, schema, media_type), **_problems(*errors)}
    return {"operationId": name, "summary": summary, "responses": responses}


def _delivered() -> _Json:
    return {
        "events": _described(_COUNT, "number of events"),
        "dead_letters": _described(_COUNT, "number of dead letters"),
        "blanks": _described(_COUNT, "number of blank lines, which produce no record"),
        "dead_letter_reasons": _REASONS,
    }


def _problem() -> _Json:
    members = _object(
        title=_described({"type": "string"}, "phrase of the HTTP status"),
        status=_described({"type": "integer"}, "HTTP status"),
        detail=_described({"type": "string", "minLength": 1}, "what happened"),
        code=_described(
            {"type": "string", "pattern": "^[a-z0-9_]+$"}, "error code, which never changes"
        ),
        next_step=_described({"type": "string", "minLength": 1}, "what the client should do next"),
    )
    members["properties"]["rejected"] = _REJECTED
    return {
        "description": "problem details of RFC 9457, with an error code and the next step",
        **members,
    }


def _problems(*statuses: int) -> _Json:
    return {
        str(status): _answer(
            HTTPStatus(status).phrase, {"$ref": "#/components/schemas/Problem"}, PROBLEM
        )
        for status in statuses
    }


def _answer(description: str, schema: _Json, media_type: str = _JSON) -> _Json:
    headers = [CLOCK_HEADER, RULES_HEADER, *(["Retry-After"] if media_type == PROBLEM else [])]
    return {
        "description": description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {media_type: {"schema": schema}},
    }


def _described(schema: _Json, description: str) -> _Json:
    return {**schema, "description": description}


def _object(**properties: _Json) -> _Json:
    # All properties are required; later versions may add further ones.
    return {"type": "object", "required": list(properties), "properties": properties}


def _header(
    name: str, schema: _Json, *, required: bool = False, description: str | None = None
) -> _Json:
    said = {} if description is None else {"description": description}
    return {"name": name, "in": "header", "required": required, "schema": schema, **said}


def _encoding() -> _Json:
    return _header(
        "Content-Encoding", {"enum": list(ENCODINGS)}, description="compression of the body"
    )
