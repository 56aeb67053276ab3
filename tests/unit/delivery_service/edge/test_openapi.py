"""The OpenAPI document, held against the running service: whatever is posted, the answer is one
that it tells of.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.support.service.examples import NOW_MS, range_of
from tests.support.service.harness import Harness, running, with_scene
from tests.support.service.network import networked

from hourmark.config.loading import Config
from hourmark.records.wire import (
    EVENTS_PATH,
    EXTRA_HEADERS,
    RANGES_PATH,
    REPORTS_PATH,
    VALIDATE_PATH,
    range_headers,
)
from hourmark_delivery_service.edge import probes
from hourmark_delivery_service.edge.app import api_routes
from hourmark_delivery_service.edge.openapi import OPENAPI_PATH, openapi_document


def no_fault(_: Any, answer: Response, __: Case[Any]) -> None:
    """No 5xx, but for what the request itself asks to wait for: a revision, or a time, that is not
    there yet.
    """
    if answer.status_code >= 500:
        code = answer.json()["code"]
        assert (answer.status_code, code) in {(503, "rules_unknown"), (503, "clock_behind")}, (
            answer.text
        )


# Not `negative_data_rejection`: a line that is no event is kept as a dead letter, with its reason,
# and answered 200.
CHECKS: Final[list[Callable[..., Any]]] = [
    allow_header_conformance,
    content_type_conformance,
    no_fault,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
OPERATIONS: Final = [
    (path, method)
    for path, methods in openapi_document(Config(service={"state_dir": "/nowhere"}).service)[
        "paths"
    ].items()
    for method in methods
]
CASES: Final = [
    (path, method, mode)
    for path, method in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE
    or method == "post"  # a GET takes nothing that could be wrong
]
EXAMPLES: Final = 25  # of each operation and mode in every run; the long tier has 500


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a service of this module's own answers."""
    ready, found, end = threading.Event(), [], asyncio.Event()

    async def serve() -> None:
        async with networked() as network:
            found.append((f"http://127.0.0.1:{network.port}", asyncio.get_running_loop()))
            ready.set()
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    address, loop = found[0]
    yield address
    loop.call_soon_threadsafe(end.set)
    thread.join(10)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_every_answer_is_one_that_the_document_tells_of(
    url: str, path: str, method: str, mode: GenerationMode
) -> None:
    seen = hold(url, path, method, mode, EXAMPLES)
    assert 200 in seen or mode is GenerationMode.NEGATIVE or path == REPORTS_PATH, (
        "they come as far as an answer"
    )


@pytest.mark.long
@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_every_answer_of_500_is_one_that_the_document_tells_of(
    url: str, path: str, method: str, mode: GenerationMode
) -> None:
    hold(url, path, method, mode, 500)


@pytest.mark.parametrize("fault", ["an answer untold", "another form"])
def test_an_answer_that_the_document_does_not_tell_of_is_found(
    url: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    told = openapi_document(Config(service={"state_dir": "/nowhere"}).service)
    answers = told["paths"][EVENTS_PATH]["post"]["responses"]
    if fault == "an answer untold":
        del answers["200"]  # the one that is sure to come, as the test above holds
    else:
        answers["200"]["content"]["application/json"]["schema"]["required"].append("absent")
    monkeypatch.setattr(probes, "openapi_document", lambda _: told)
    with pytest.raises(FailureGroup):
        hold(url, EVENTS_PATH, "post", GenerationMode.POSITIVE, EXAMPLES)


@with_scene(running)
async def test_every_path_is_in_the_document(h: Harness) -> None:
    assert {
        (route.path, method.lower())
        for route in api_routes(h.service)
        for method in route.methods or ()
        if method != "HEAD"
    } == set(OPERATIONS)


def hold(url: str, path: str, method: str, mode: GenerationMode, examples: int) -> set[int]:
    """Post so many generated requests; the statuses that came, each of them told by the
    document.
    """
    schema = schemathesis.openapi.from_url(f"{url}{OPENAPI_PATH}")
    operation = schema[path][method.upper()]
    seen: set[int] = set()

    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    def every(case: Case[Any], acceptable: bool) -> None:
        if acceptable:
            accept(case)
        answer = case.call(timeout=10)
        seen.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    every()
    return seen


def accept(case: Case[Any]) -> None:
    """Let the headers say what the service takes, so that it comes to the body: what they are made
    of is refused soon.
    """
    body = case.body if isinstance(case.body, bytes) else str(case.body).encode()
    if case.path == RANGES_PATH:
        case.body = body + b"\n"
        for header in EXTRA_HEADERS:
            case.headers.pop(header, None)
        case.headers.update(range_headers(range_of(case.body)))
    elif case.path in (EVENTS_PATH, VALIDATE_PATH):
        case.path_parameters["type"] = "click"
        case.headers["Hourmark-Observed-At"] = str(NOW_MS)
        case.headers.pop("Hourmark-Rules", None)
    case.headers.pop("Content-Encoding", None)
