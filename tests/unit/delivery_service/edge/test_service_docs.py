"""docs/reference/http-api.md names what the code has: paths, headers, codes, reasons."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.service.examples import range_of
from tests.support.service.harness import Harness, with_service

from hourmark.records import wire
from hourmark.records.dead_letters import DeadLetterReason
from hourmark_delivery_service.edge.app import api_routes

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / "docs" / "reference" / "http-api.md").read_text()


@with_service()
async def test_every_path_is_described(h: Harness) -> None:
    paths = {route.path for route in api_routes(h.service)}
    assert paths <= set(re.findall(r"(?:GET|POST) (/[^`]*)`", TEXT))


def test_every_reason_of_dead_letters_is_described() -> None:
    assert [reason.value for reason in DeadLetterReason if f"`{reason.value}`" not in TEXT] == []


def test_every_header_is_described() -> None:
    headers = [
        *wire.range_headers(range_of(b"x\n")),
        wire.CLOCK_HEADER,
        wire.IDEMPOTENCY_HEADER,
        wire.CLIENT_HEADER,
    ]
    assert [header for header in headers if f"`{header}`" not in TEXT] == []


def test_every_code_of_503_is_described() -> None:
    code = "".join(
        file.read_text()
        for file in (ROOT / "delivery_service" / "hourmark_delivery_service").rglob("*.py")
    )
    codes = set(re.findall(r'ServiceUnavailable\(\s*"(\w+)"', code))
    assert codes
    assert {found for found in codes if f"`{found}`" not in TEXT} == set()


@with_service()
async def test_the_example_of_the_documentation_works(h: Harness) -> None:
    match = re.search(r"/v1/events/(\S+) -H 'Idempotency-Key: (\S+)' -d '(.*)'", TEXT)
    assert match is not None
    answer = (await h.post_events(match[3].encode(), match[1], Idempotency_Key=match[2])).json()
    described = re.search(r'^({"events": .*"repeat".*})$', TEXT, re.MULTILINE)
    assert described is not None
    assert list(answer) == list(json.loads(described[1]))
    assert (answer["events"], answer["delivery"]) == (1, "exactly once")
