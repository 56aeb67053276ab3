"""A bit flips in a log of the edge before the mirror has copied it: its type waits and is named,
all other types close.
"""

from __future__ import annotations

import pytest
from tests.faults.outcome import LONG
from tests.support.etl_scene import Scene
from tests.support.plain_broker import LogFile

from hourmark.kafka.topic_names import events_topic
from hourmark_etl.ledger.database import Database
from hourmark_etl.ledger.overrides import blockers
from hourmark_infra.stack import LocalStack
from hourmark_infra.stack.servers import MIRROR

pytestmark = LONG
SCENE = {"names": ("flipped", "one", "two", "three"), "cluster": "both"}
FROM_END = 20  # bytes: within the last record


@pytest.fixture(scope="module")
def stack(own_stack: LocalStack) -> LocalStack:
    """Of its own: its mirror stands still at the damaged batch."""
    return own_stack


def leaders_log(stack: LocalStack, running: Scene, topic: str) -> LogFile:
    leader = running.edge.admin.list_topics(topic).topics[topic].partitions[0].leader
    (log,) = (stack.layout.data / f"edge-{leader}").glob(f"**/{topic}-0/{0:020d}.log")
    return LogFile(log)


def test_a_flipped_bit_at_the_edge_holds_its_type_alone(stack: LocalStack, running: Scene) -> None:
    flipped = running.types[0]
    stack.stop(MIRROR)
    hour = running.begin_hour()
    log = leaders_log(stack, running, events_topic(flipped))

    def is_named() -> bool:
        with Database(running.run.config.etl.ledger) as database:
            found = blockers(database, running.run.config.parsing.bucket_seconds).get(flipped)
        return (
            found is not None
            and found.hour == hour
            and any(events_topic(flipped) in each for each in found.what)
        )

    with log.with_flipped_bit(len(log.read()) - FROM_END, 2):
        stack.start(MIRROR)
        assert running.closed(hour, without=(flipped,)).grade.value == "proved"
        assert running.run.manifest(flipped, hour) is None
        running.wait(is_named, f"{flipped} waits for its topic")
