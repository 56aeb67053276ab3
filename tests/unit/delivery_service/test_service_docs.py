"""docs/http-api.md names what the code has: paths, headers, codes, reasons."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.service.examples import range_of
from tests.support.service.harness import Harness, run, running

from hourmark import wire
from hourmark.dead_letters import Reason
from hourmark_delivery_service.app import create_app

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "http-api.md").read_text()


def test_every_path_is_described() -> None:
    async def paths() -> list[str]:
        async with running() as harness:
            return [route.path for route in create_app(harness.service)._routes]  # type: ignore[attr-defined]

    described = set(re.findall(r"(?:GET|POST) (/[^`]*)`", TEXT))
    assert set(run(paths)) <= described


def test_every_reason_of_dead_letters_is_described() -> None:
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in TEXT] == []


def test_every_header_is_described() -> None:
    headers = [*wire.range_headers(range_of(b"x\n")), wire.CLOCK_HEADER, wire.IDEMPOTENCY_HEADER, wire.CLIENT_HEADER]
    assert [header for header in headers if f"`{header}`" not in TEXT] == []


def test_every_code_of_503_is_described() -> None:
    code = "".join(file.read_text() for file in (ROOT / "delivery_service" / "hourmark_delivery_service").glob("*.py"))
    codes = set(re.findall(r'NotNow\(\s*"(\w+)"', code))
    assert codes
    assert {found for found in codes if f"`{found}`" not in TEXT} == set()


def test_the_example_of_the_documentation_works() -> None:
    match = re.search(r"/v1/events/(\S+) -H 'Idempotency-Key: (\S+)' -d '(.*)'", TEXT)
    assert match is not None

    async def post() -> dict[str, object]:
        async with running() as harness:
            return await _post(harness, *match.groups())

    answer = run(post)
    assert list(answer) == ["events", "dead_letters", "delivery", "repeat"]
    assert (answer["events"], answer["delivery"]) == (1, "exactly once")


async def _post(harness: Harness, event_type: str, key: str, body: str) -> dict[str, object]:
    found: dict[str, object] = (await harness.post_events(body.encode(), event_type, Idempotency_Key=key)).json()
    return found
