"""The canary posts one event, and the same again until it is acknowledged."""

from __future__ import annotations

import json

import pytest
from tests.support.clock import FakeClock

from hourmark.commands.canary import CANARY, PATIENCE_S
from hourmark_producer.canary import CanaryPoster
from hourmark_producer.send.client import DeliveryServiceClient, NoServiceAvailable, RequestRefused
from hourmark_producer.send.clocks import ClockReading

NOW_MS = 1_800_000_000_000


class PlayedLink(DeliveryServiceClient):
    """Answers what it is given, in turn."""

    def __init__(self, *answers: Exception | dict[str, int]) -> None:
        self.answers, self.bodies, self.clock_ms = list(answers), list[bytes](), NOW_MS

    def current_reading(self, age_max_s: float = 2.0) -> ClockReading:
        self.clock_ms += 1000
        return ClockReading(self.clock_ms, "1-a", 0.0)

    def post_events(self, event_type: str, body: bytes) -> dict[str, int]:
        assert event_type == CANARY
        self.bodies.append(body)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


TAKEN = {"events": 1, "dead_letters": 0}


def test_what_is_not_acknowledged_is_posted_again_as_it_was_and_then_comes_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    link = PlayedLink(NoServiceAvailable("no"), RequestRefused("unknown type"), TAKEN, TAKEN)
    canary = CanaryPoster(link, "edge", FakeClock())
    assert [canary.post() for _ in range(4)] == [False, False, True, True]
    first, again, third, new = (json.loads(body) for body in link.bodies)
    assert first == again == third
    assert first == {
        "event_id": f"edge/{NOW_MS + 1000}",
        "event_time": NOW_MS + 1000,
        "site": "edge",
        "sent_at": NOW_MS + 1000,
    }
    assert new["event_time"] == NOW_MS + 2000
    levels = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert [level for level, _ in levels] == ["ERROR", "INFO", "WARNING", "INFO"], (
        "said once, and once that it is over"
    )
    told = [
        json.loads(said.removeprefix("acknowledged: ")) for level, said in levels if level == "INFO"
    ]
    assert told == [first, new], (
        "its log is a record of what was taken, for who compares it with the buckets"
    )


def test_a_canary_that_becomes_a_dead_letter_is_told() -> None:
    link = PlayedLink({"events": 0, "dead_letters": 1})
    assert not CanaryPoster(link, "edge", FakeClock()).post()


def test_it_is_unwell_where_none_was_acknowledged_for_longer_than_it_may_take() -> None:
    clock = FakeClock()
    canary = CanaryPoster(
        PlayedLink(TAKEN, NoServiceAvailable("no"), {"events": 0, "dead_letters": 1}), "edge", clock
    )
    assert b"hourmark_canary_acknowledged_timestamp_seconds 0.0" in canary.render_metrics()
    assert canary.post()
    assert (
        f"hourmark_canary_acknowledged_timestamp_seconds {clock.now_ms() / 1000}"
        in canary.render_metrics().decode()
    )
    clock.sleep(PATIENCE_S)
    assert not canary.unhealthy_reasons()
    clock.sleep(1)
    for _ in range(2):
        assert not canary.post()
        assert canary.unhealthy_reasons() == [
            f"no canary was acknowledged for {PATIENCE_S + 1:.0f} s"
        ]
