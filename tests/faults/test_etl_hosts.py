"""A host that never comes back is waived by name after the deadline; one that does finds its old
events in the next bucket.
"""

from __future__ import annotations

import time
import uuid

from tests.faults.outcome import LONG
from tests.support.etl_scene import Scene

pytestmark = LONG

MINUTES_AGO = 20
# The first hour ended nearly so long ago: it is over soon after the driver has begun.
DEADLINE_SECONDS = 60 * MINUTES_AGO + 30
HOURS_BETWEEN = 10  # the next hour looked at is far from its own deadline
TWO_DAYS_MS = 2 * 86_400_000
SCENE = {
    "names": ("one",),
    "etl": {"deadline_seconds": float(DEADLINE_SECONDS)},
    "minutes_ago": MINUTES_AGO,
}


def test_a_host_gone_for_good_is_waived_by_name_and_back_after_two_days_its_events_are_late(
    fresh: Scene,
) -> None:
    gone = uuid.uuid4().hex
    fresh.delivery.report(fresh.first.start_s * 1000, host_id=gone, source=fresh.source)
    first = fresh.begin_hour()
    manifest = fresh.closed(first)
    assert manifest.grade.value == "timed_out"
    assert any(gone in waived for waived in manifest.evidence.waived)
    assert manifest.closed_at_ms >= first.end_ms + DEADLINE_SECONDS * 1000

    second = fresh.closed(fresh.begin_hour(skipping=HOURS_BETWEEN))
    assert (second.grade.value, second.evidence.waived) == ("proved", [])

    old = fresh.delivery.make(
        fresh.types[0], [fresh.first.start_s * 1000 - TWO_DAYS_MS + n for n in range(20)]
    )
    missed = fresh.delivery.make(fresh.types[0], [first.start_s * 1000 + n for n in range(10)])
    for sent in (old, missed):
        fresh.delivery.deliver(sent)
        fresh.judge.promised(sent, by=fresh.next_hour)
    fresh.delivery.report(time.time_ns() // 1_000_000, host_id=gone, source=fresh.source)
    third = fresh.closed(fresh.begin_hour())
    assert (third.grade.value, third.evidence.waived) == ("proved", [])
    assert third.late[str(first)] == 10 + 1, "and the one that each round has"
    assert sum(third.late.values()) == 20 + 10 + 1
    fresh.delivery.report(
        time.time_ns() // 1_000_000, host_id=gone, source=fresh.source, goodbye=True
    )
