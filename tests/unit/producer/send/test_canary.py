"""The canary posts one event, and the same again until it is acknowledged."""

from __future__ import annotations

import json

import pytest
from tests.support.clock import FakeClock

from hourmark.commands.canary import CANARY, PATIENCE_S
from hourmark_producer.canary import Canary
from hourmark_producer.send.client import Busy, Refused, ServiceLink
from hourmark_producer.send.clocks import Reading

NOW_MS = 1_800_000_000_000


class PlayedLink(ServiceLink):
    """Answers what it is given, in turn."""

    def __init__(self, *answers: Exception | dict[str, int]) -> None:
        self.answers, self.bodies, self.clock_ms = list(answers), list[bytes](), NOW_MS

    def fresh(self, age_max_s: float = 2.0) -> Reading:
        self.clock_ms += 1000
        return Reading(self.clock_ms, "1-a", 0.0)

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
    link = PlayedLink(Busy("no"), Refused("unknown type"), TAKEN, TAKEN)
    canary = Canary(link, "edge", FakeClock())
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
    assert not Canary(link, "edge", FakeClock()).post()


def test_it_is_unwell_where_none_was_acknowledged_for_longer_than_it_may_take() -> None:
    clock = FakeClock()
    canary = Canary(PlayedLink(TAKEN, Busy("no"), {"events": 0, "dead_letters": 1}), "edge", clock)
    assert b"hourmark_canary_acknowledged_timestamp_seconds 0.0" in canary.exposition()
    assert canary.post()
    assert (
        f"hourmark_canary_acknowledged_timestamp_seconds {clock.now_ms() / 1000}"
        in canary.exposition().decode()
    )
    clock.sleep(PATIENCE_S)
    assert not canary.unwell()
    clock.sleep(1)
    for _ in range(2):
        assert not canary.post()
        assert canary.unwell() == [f"no canary was acknowledged for {PATIENCE_S + 1:.0f} s"]
