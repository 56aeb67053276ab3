"""docs/reference/http-api.md and http-ranges.md name what the code has: paths, headers, the example.

Codes and reasons have tests of their own: tests/unit/docs/test_codes_pages.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.service.examples import range_of
from tests.support.service.harness import Harness, with_service

from hourmark.records import wire
from hourmark_delivery_service.edge.app import api_routes

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "reference" / "http-api.md").read_text()
TEXT = PAGE + (ROOT / "docs" / "reference" / "http-ranges.md").read_text()


@with_service()
async def test_every_path_is_described(h: Harness) -> None:
    paths = {route.path for route in api_routes(h.service)}
    assert paths <= set(re.findall(r"(?:GET|POST) (/[^`]*)`", PAGE))


def test_every_header_is_described() -> None:
    headers = [
        *wire.range_headers(range_of(b"x\n")),
        wire.CLOCK_HEADER,
        wire.IDEMPOTENCY_HEADER,
        wire.CLIENT_HEADER,
    ]
    assert [header for header in headers if f"`{header}`" not in TEXT] == []


@with_service()
async def test_the_example_of_the_documentation_works(h: Harness) -> None:
    text = re.sub(r"\s*\\?\n\s+", " ", PAGE)  # without the line ends of wrapped lines
    match = re.search(r"/v1/events/(\S+) -H 'Idempotency-Key: (\S+)' -d '(.*?)'", text)
    assert match is not None
    answer = (await h.post_events(match[3].encode(), match[1], Idempotency_Key=match[2])).json()
    described = re.search(r'^({"events": .*?"repeat".*})$', text, re.MULTILINE)
    assert described is not None
    assert list(answer) == list(json.loads(described[1]))
    assert (answer["events"], answer["delivery"]) == (1, "exactly once")
