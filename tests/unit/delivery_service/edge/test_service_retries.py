"""POST /v1/events/{type}: `exactly once` is said of exactly those batches that a plain retry does
not double.

A plain retry has the same headers and body, comes a minute later, and finds another rules revision
in force.
"""

from __future__ import annotations

import uuid

import pytest
from tests.support.revisions import encoded
from tests.support.service.examples import CLICK, NOW_MS, TYPES, compiled, rules_of
from tests.support.service.harness import Harness, with_service
from tests.unit.delivery_service.edge.test_service_events import LINE, named
from tests.unit.delivery_service.edge.test_service_ranges import code

from hourmark.rules.revision import Rules, TypeVersion
from hourmark_delivery_service.edge.events_endpoint import idempotency_key_time_ms

MADE_MS = NOW_MS - 7_654
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def uuid7(time_ms: int) -> str:
    return str(uuid.UUID(int=time_ms << 80 | 7 << 76 | 0x123 << 64 | 2 << 62 | 0x456))


def ulid(time_ms: int) -> str:
    value = time_ms << 80 | 0x1234567890
    return "".join(ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


KEYS = {
    "none": None,
    "plain": "order-7",
    "uuid7": uuid7(MADE_MS),
    "ulid": ulid(MADE_MS),
    "uuid4": str(uuid.uuid4()),
}
HEADERS = {
    "none": {},
    "rules": {"Hourmark_Rules": compiled().id},
    "time": {"Hourmark_Observed_At": str(MADE_MS)},
    "both": {"Hourmark_Observed_At": str(MADE_MS), "Hourmark_Rules": compiled().id},
}
EVENT_TIME = MADE_MS - 5
BODIES = {
    "neither": LINE + b"\n" + named(ms=2),
    "times": named(event_time=EVENT_TIME) + named(event_time=EVENT_TIME, ms=2),
    "ids": named(event_id="a") + named(event_id="b"),
    "both": named(event_id="a", event_time=EVENT_TIME) + named(event_id="b", event_time=EVENT_TIME),
    "one without id": named(event_id="a", event_time=EVENT_TIME) + named(event_time=EVENT_TIME),
    "one without time": named(event_id="a", event_time=EVENT_TIME) + named(event_id="b"),
    "one dead letter": named(event_id="a", event_time=EVENT_TIME)
    + named(event_id="b", event_time=EVENT_TIME, x=1),
}


async def retried(h: Harness, body: bytes, headers: dict[str, str]) -> tuple[set[str], bool]:
    """What two posts said of their delivery, and whether they left more records than the body has
    lines.
    """
    first = await h.post_events(body, **headers)
    h.clock.advance(60)
    h.rules.feed(encoded(rules_of(2).records()), from_start=False)
    second = await h.post_events(body, **headers)
    assert second.headers["Hourmark-Rules"] == rules_of(2).id
    ids = {(r.topic, r.key[:16]) for r in h.queue.records if r.topic.startswith("events.")}
    for answer in (first, second):
        assert ("next_step" in answer.json()) == (answer.json()["delivery"] == "at least once")
    return {first.json()["delivery"], second.json()["delivery"]}, len(ids) > body.count(b"\n")


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize("key", KEYS)
@with_service()
async def test_exactly_once_is_said_where_a_plain_retry_doubles_nothing_and_nowhere_else(
    h: Harness, key: str, headers: str, body: str
) -> None:
    name = KEYS[key]
    sent = HEADERS[headers] | ({} if name is None else {"Idempotency_Key": name})
    said, doubled = await retried(h, BODIES[body], sent)
    assert said == {"at least once" if doubled else "exactly once"}


@pytest.mark.parametrize("key", ["uuid7", "ulid"])
@with_service()
async def test_a_key_with_a_time_makes_a_plain_retry_the_same_byte_for_byte(
    h: Harness, key: str
) -> None:
    body = LINE + b"\n" + named(event_time=MADE_MS) + b"broken\n"
    first = await h.post_events(body, Idempotency_Key=str(KEYS[key]))
    once, h.queue.records = h.queue.records, []
    h.clock.advance(3600 * 24 * 400)
    second = await h.post_events(body, Idempotency_Key=str(KEYS[key]))
    assert first.json() == second.json()
    assert first.json()["repeat"]["Hourmark-Observed-At"] == str(MADE_MS)
    assert [r[:3] for r in once] == [r[:3] for r in h.queue.records]


@with_service()
async def test_a_time_in_the_headers_comes_before_that_of_the_key(h: Harness) -> None:
    answer = await h.post_events(
        LINE, Idempotency_Key=uuid7(MADE_MS), Hourmark_Observed_At=str(MADE_MS - 1)
    )
    assert answer.json()["repeat"]["Hourmark-Observed-At"] == str(MADE_MS - 1)


@pytest.mark.parametrize("time_ms", [0, 946_684_799_999, 4_102_444_800_000, (1 << 48) - 1])
@with_service()
async def test_a_key_whose_time_is_not_of_this_century_is_a_name_only(
    h: Harness, time_ms: int
) -> None:
    for key in (uuid7(time_ms), ulid(time_ms)):
        answer = (await h.post_events(LINE, Idempotency_Key=key)).json()
        assert (answer["delivery"], answer["repeat"]["Hourmark-Observed-At"]) == (
            "at least once",
            str(NOW_MS),
        )


@with_service()
async def test_a_key_ahead_of_the_clock_waits_until_it_is_not_and_doubles_nothing(
    h: Harness,
) -> None:
    """Taken at once as of the service's time, it would be doubled by the retry that finds it
    plausible.
    """
    key = uuid7(NOW_MS + 16 * 60_000)
    assert code(await h.post_events(LINE, Idempotency_Key=key)) == (503, "clock_behind")
    assert h.queue.records == []
    h.clock.advance(61)
    assert (await h.post_events(LINE, Idempotency_Key=key)).json()["delivery"] == "exactly once"


@with_service()
async def test_a_line_that_newer_rules_take_stays_a_dead_letter_too_and_nothing_is_doubled(
    h: Harness,
) -> None:
    body, key = named() + named(x=1), uuid7(MADE_MS)
    click = CLICK.model_copy(
        update={"fields": [*CLICK.fields, {"name": "x", "type": ["null", "long"], "default": None}]}
    )
    newer = Rules(
        sequence=2,
        types={**rules_of().types, "click": TypeVersion(click, len(TYPES) + 1)},
        sources=rules_of().sources,
        parsing=rules_of().parsing,
    )
    assert (await h.post_events(body, Idempotency_Key=key)).json()["dead_letter_reasons"] == {
        "unknown_field": 1
    }
    h.rules.feed(encoded(newer.records()), from_start=False)
    for _ in range(2):
        assert (await h.post_events(body, Idempotency_Key=key)).json()["events"] == 2
    assert len({r.key[:16] for r in h.queue.of("events.click")}) == 2
    assert len({r.key[:16] for r in h.queue.of("events.dead-letters")}) == 1


def test_times_of_keys() -> None:
    for key in (
        uuid7(MADE_MS),
        uuid7(MADE_MS).upper(),
        f'"{uuid7(MADE_MS)}"',
        ulid(MADE_MS),
        ulid(MADE_MS).lower(),
    ):
        assert idempotency_key_time_ms(key) == MADE_MS
    assert (
        idempotency_key_time_ms("01ARZ3NDEKTSV4RRFFQ69G5FAV") == 1_469_922_850_259
    )  # the example of ULID's specification
    assert (
        idempotency_key_time_ms("017F22E2-79B0-7CC3-98C4-DC0C0C07398F") == 1_645_557_742_000
    )  # RFC 9562, appendix A.6
    no_times = (
        "",
        "order-7",
        str(uuid.uuid4()),
        uuid7(MADE_MS).replace("-", ""),
        uuid7(MADE_MS)[:14] + "8" + uuid7(MADE_MS)[15:],
        uuid7(MADE_MS)[:19] + "c" + uuid7(MADE_MS)[20:],
        uuid7(MADE_MS) + "\n",
        "8" + ulid(MADE_MS)[1:],
        "U" + ulid(MADE_MS)[1:],
        ulid(MADE_MS)[:-1] + "L",
        ulid(MADE_MS)[:-1] + "\u017f",
        ulid(MADE_MS) + "0",
    )
    assert [key for key in no_times if idempotency_key_time_ms(key) is not None] == []
